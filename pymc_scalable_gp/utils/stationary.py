"""Stationary kernels as functions of squared distances, for arrays of any library."""

from math import pi


def kernel_of_squares(kind, squares, shape, xp):
    """Kernel of unit variance by NumPy, JAX or PyTensor, `xp`; `shape` is alpha of a RatQuad or an Arc."""
    if kind == "ExpQuad":
        return xp.exp(-0.5 * squares)
    if kind == "RatQuad":
        return xp.exp(-shape * xp.log1p(0.5 * squares / shape))
    if kind == "Arc":
        return xp.exp(-shape * angle_of_squares(squares, xp))
    root = root_of_squares(squares, xp)
    if kind == "Matern32":
        return (1.0 + 3.0**0.5 * root) * xp.exp(-(3.0**0.5) * root)
    if kind == "Matern52":
        return (1.0 + 5.0**0.5 * root + 5.0 / 3.0 * root**2) * xp.exp(-(5.0**0.5) * root)
    return xp.exp(-(1.0 if kind == "Matern12" else 0.5) * root)


def root_of_squares(squares, xp):
    """Distances; their derivative at 0 is 0."""
    zero = squares <= 0.0
    return xp.where(zero, 0.0, xp.sqrt(xp.where(zero, 1.0, squares)))


def angle_of_squares(squares, xp):
    """Angles on the sphere, ``2 asin(root / 2)``; derivatives at 0 and between opposite points are 0."""
    end = squares >= 4.0
    half = 0.5 * root_of_squares(xp.where(end, 0.0, squares), xp)
    return xp.where(end, pi, 2.0 * xp.arcsin(half))
