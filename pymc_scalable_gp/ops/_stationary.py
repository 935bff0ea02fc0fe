"""Stationary kernels and their derivatives, as functions of squared distances."""

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._exponential import exponential
from pymc_scalable_gp.utils.stationary import angle_of_squares, root_of_squares

# The kernels that are known here, by their places.
KINDS = ("ExpQuad", "Matern12", "Exponential", "Matern32", "Matern52", "RatQuad", "Arc")
EXPQUAD, MATERN12, EXPONENTIAL, MATERN32, MATERN52, RATQUAD, ARC = range(len(KINDS))

# Those with a parameter beside the lengthscales.
SHAPED = ("RatQuad", "Arc")

# Below this share of alpha a squared distance changes a RatQuad in alpha by a power series.
_SMALL = 1e-3


def kind_number(kind: str) -> int:
    """The place of a kind among KINDS; ValueError if it is none."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
    return KINDS.index(kind)


class KindOp(GufuncOp):
    """An Op of a stationary kernel, one of KINDS, whose functions take its place there."""

    __props__: tuple[str, ...] = ("kind",)

    def __init__(self, kind, *props, **named):
        kind_number(kind)
        super().__init__(kind, *props, **named)

    def options(self):
        """The kind as a number, and the other props."""
        kind, *others = super().options()
        return kind_number(kind), *others


@register_jitable
def kernel_value(square, kind, shape):
    """Kernel of unit variance at a squared distance; `shape` is the alpha of a RatQuad or an Arc."""
    if kind == EXPQUAD:
        return exponential(-0.5 * square)
    if kind == RATQUAD:
        return exponential(-shape * np.log1p(0.5 * square / shape))
    if kind == ARC:
        return exponential(-shape * angle(square))
    if kind == MATERN32:
        root = np.sqrt(3.0 * square)
        return (1.0 + root) * exponential(-root)
    if kind == MATERN52:
        root = np.sqrt(5.0 * square)
        return (1.0 + root + root * root / 3.0) * exponential(-root)
    return exponential(-(1.0 if kind == MATERN12 else 0.5) * np.sqrt(square))


@register_jitable
def relative_slope(square, kind, shape):
    """Derivative of the kernel's logarithm in the squared distance.

    At distance 0, and between opposite points of the sphere, that of a kernel of the distance itself
    counts as 0.
    """
    if kind == EXPQUAD:
        return -0.5
    if kind == RATQUAD:
        return -0.5 / (1.0 + 0.5 * square / shape)
    if kind == ARC:
        between = 0.0 < square < 4.0
        return -shape / np.sqrt(square * (4.0 - square)) if between else 0.0
    if kind == MATERN32:
        return -1.5 / (1.0 + np.sqrt(3.0 * square))
    if kind == MATERN52:
        root = np.sqrt(5.0 * square)
        return -(5.0 / 6.0) * (1.0 + root) / (1.0 + root + root * root / 3.0)
    rate = 0.5 if kind == MATERN12 else 0.25
    return -rate / np.sqrt(square) if square > 0.0 else 0.0


@register_jitable
def value_and_slope(square, kind, shape):
    """Kernel, and its derivative in the squared distance.

    Those of a Matern kernel have root and exponential in common, and need no division.
    """
    if kind == MATERN32:
        root = np.sqrt(3.0 * square)
        decay = exponential(-root)
        return (1.0 + root) * decay, -1.5 * decay
    if kind == MATERN52:
        root = np.sqrt(5.0 * square)
        decay = exponential(-root)
        return (1.0 + root + root * root / 3.0) * decay, -(5.0 / 6.0) * (1.0 + root) * decay
    value = kernel_value(square, kind, shape)
    return value, value * relative_slope(square, kind, shape)


def slope_of_squares(kind, squares, shape, xp):
    """As `relative_slope`, of arrays."""
    if kind == "ExpQuad":
        return -0.5
    if kind == "RatQuad":
        return -0.5 / (1.0 + 0.5 * squares / shape)
    if kind == "Arc":
        between = (squares > 0.0) & (squares < 4.0)
        inner = xp.where(between, squares, 1.0)
        return xp.where(between, -shape / xp.sqrt(inner * (4.0 - inner)), 0.0)
    root = root_of_squares(squares, xp)
    if kind == "Matern32":
        return -1.5 / (1.0 + 3.0**0.5 * root)
    if kind == "Matern52":
        scaled = 5.0**0.5 * root
        return -(5.0 / 6.0) * (1.0 + scaled) / (1.0 + scaled + scaled**2 / 3.0)
    rate = 0.5 if kind == "Matern12" else 0.25
    return xp.where(root > 0.0, -rate / xp.where(root > 0.0, root, 1.0), 0.0)


def shape_slope_of_squares(kind, squares, shape, xp):
    """As `shape_slope`, of arrays."""
    if kind == "Arc":
        return -angle_of_squares(squares, xp)
    u = 0.5 * squares / shape
    series = u * u * (-0.5 + u * (2.0 / 3.0 + u * (-0.75 + u * (0.8 - u * 5.0 / 6.0))))
    return xp.where(u < _SMALL, series, u / (1.0 + u) - xp.log1p(u))


@register_jitable
def angle(square):
    """Angle between two points of the unit sphere at a squared distance: ``2 asin(root / 2)``."""
    return 2.0 * np.arcsin(0.5 * np.sqrt(min(square, 4.0)))


@register_jitable
def shape_slope(square, kind, shape):
    """Derivative of a kernel's logarithm in alpha.

    That of a RatQuad is ``u / (1 + u) - log(1 + u)``, u = square / 2 alpha: for small u, where the two
    terms cancel, by its series. That of an Arc is minus the angle.
    """
    if kind == ARC:
        return -angle(square)
    u = 0.5 * square / shape
    if u < _SMALL:
        return u * u * (-0.5 + u * (2.0 / 3.0 + u * (-0.75 + u * (0.8 - u * 5.0 / 6.0))))
    return u / (1.0 + u) - np.log1p(u)
