"""Covariances beside those of `pm.gp.cov`: products of 1-D kernels, on objects, of groups, on the globe.

Examples
--------
>>> import numpy as np
>>> import pymc as pm
>>> import pymc_scalable_gp as sgp
>>> smooth = pm.gp.cov.ExpQuad(2, ls=1.0, active_dims=[0])
>>> cov = smooth * sgp.cov.Hamming(2, ls=1.0, active_dims=[1])  # a number and a category
>>> cov(np.array([[0.0, 1.0], [0.0, 2.0]])).eval().round(3)
array([[1.   , 0.368],
       [0.368, 1.   ]])
"""

from pymc_scalable_gp.cov.globe import GreatCircle
from pymc_scalable_gp.cov.groups import PerGroup
from pymc_scalable_gp.cov.objects import FromFunction, Hamming, HistogramIntersection, Spectrum
from pymc_scalable_gp.cov.products import Product

__all__ = [
    "FromFunction",
    "GreatCircle",
    "Hamming",
    "HistogramIntersection",
    "PerGroup",
    "Product",
    "Spectrum",
]
