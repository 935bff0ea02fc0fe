"""SKIP: products of interpolated 1-D kernels."""
