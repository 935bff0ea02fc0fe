"""Stationary kernels between the local rows of a block, and their derivatives."""

import numpy as np
from numba.extending import register_jitable

# The kernels that are known here, by their places.
KINDS = ("ExpQuad", "Matern12", "Exponential", "Matern32", "Matern52", "RatQuad")
_EXPQUAD, _MATERN12, _EXPONENTIAL, _MATERN32, _MATERN52, _RATQUAD = range(len(KINDS))


@register_jitable
def local_inputs(X, scale, places):
    """Scaled inputs of some rows, dimension by dimension (d, s)."""
    out = np.empty((X.shape[1], len(places)))
    for i in range(len(places)):
        for a in range(X.shape[1]):
            out[a, i] = (X[places[i], a] - X[places[0], a]) * scale[a]
    return out


@register_jitable
def fill_squares(inputs, out):
    """Squared distances in the lower triangle."""
    d, s = inputs.shape
    for i in range(s):
        for j in range(i + 1):
            out[i, j] = 0.0
        for a in range(d):
            for j in range(i + 1):
                difference = inputs[a, i] - inputs[a, j]
                out[i, j] += difference * difference


@register_jitable
def kernel_values(squares, kind, shape, values, slopes):
    """Kernel and its derivative in the squared distance, in the lower triangles.

    At distance 0 the derivative of a kernel of the distance itself counts as 0. `shape` is the alpha of
    a RatQuad.
    """
    s = squares.shape[0]
    for i in range(s):
        for j in range(i + 1):
            square = squares[i, j]
            if kind == _EXPQUAD:
                value = np.exp(-0.5 * square)
                slope = -0.5 * value
            elif kind == _RATQUAD:
                base = 1.0 + 0.5 * square / shape
                value = base ** (-shape)
                slope = -0.5 * value / base
            elif kind == _MATERN32:
                root = np.sqrt(3.0 * square)
                decay = np.exp(-root)
                value, slope = (1.0 + root) * decay, -1.5 * decay
            elif kind == _MATERN52:
                root = np.sqrt(5.0 * square)
                decay = np.exp(-root)
                value = (1.0 + root + root * root / 3.0) * decay
                slope = -(5.0 / 6.0) * (1.0 + root) * decay
            else:
                rate = 1.0 if kind == _MATERN12 else 0.5
                root = np.sqrt(square)
                value = np.exp(-rate * root)
                slope = -0.5 * rate * value / root if root > 0.0 else 0.0
            values[i, j] = value
            slopes[i, j] = slope


@register_jitable
def add_kernel_bars(inputs, squares, kind, shape, values, slopes, M_bar, scale, variance, bars):
    """Add a block's part to the cotangents of the inverse lengthscales, of the variance and of alpha.

    From the symmetric cotangent of the block; `slopes` is overwritten.
    """
    d, s = inputs.shape
    for i in range(s):
        bars[d] -= M_bar[i, i] * values[i, i]
        for j in range(i + 1):
            weight = 2.0 * M_bar[i, j]  # the diagonal's distances are 0
            bars[d] += weight * values[i, j]
            if kind == _RATQUAD:
                base = 1.0 + 0.5 * squares[i, j] / shape
                change = (base - 1.0) / base - np.log(base)
                bars[d + 1] += weight * variance * values[i, j] * change
            slopes[i, j] *= weight * variance
    columns = np.empty(s)  # one sum alone would wait for each addition before the next
    for a in range(d):
        for j in range(s):
            columns[j] = 0.0
        for i in range(s):
            for j in range(i):
                difference = inputs[a, i] - inputs[a, j]
                columns[j] += slopes[i, j] * difference * difference
        total = columns.sum()
        if total != 0.0:
            bars[a] += 2.0 * total / scale[a]
