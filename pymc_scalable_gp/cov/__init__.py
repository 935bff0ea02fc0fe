"""Covariances beside those of `pm.gp.cov`: products of 1-D kernels, kernels on objects."""

from pymc_scalable_gp.cov.objects import FromFunction, Hamming, HistogramIntersection, Spectrum
from pymc_scalable_gp.cov.products import Product

__all__ = ["FromFunction", "Hamming", "HistogramIntersection", "Product", "Spectrum"]
