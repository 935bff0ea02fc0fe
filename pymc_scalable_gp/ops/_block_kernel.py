"""A sum of products of stationary kernels between the rows of a block, and cotangents of its parameters.

The kinds are numbers at run time: one machine code does for all kernels. In `terms` (t, 2) each factor has
its kind and the number of the summand that it belongs to; each of these q has a variance.
"""

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._stationary import (
    ARC,
    EXPONENTIAL,
    EXPQUAD,
    MATERN12,
    MATERN32,
    MATERN52,
    RATQUAD,
    shape_slope,
    value_and_slope,
)


@register_jitable
def block_factors(X, scale, shape, rows, terms, places):
    """Each factor between some rows: scaled inputs, squared distances, values and slopes.

    The inputs are (t, d, s), the others in lower triangles (t, s, s): slopes are derivatives of the values,
    kernels of unit variance but for the factors `rows` (t, n) of the rows, in the squared distances.
    """
    t, d, s = len(terms), X.shape[1], len(places)
    inputs, squares = np.empty((t, d, s)), np.zeros((t, s, s))
    values, slopes = np.zeros((t, s, s)), np.zeros((t, s, s))
    for i in range(t):
        _fill_inputs(X, scale[i], places, inputs[i])
        _fill_squares(inputs[i], scale[i], squares[i])
        _fill_kernel(squares[i], terms[i, 0], shape[i], values[i], slopes[i])
        if len(rows) > 0:
            _scale_rows(rows[i], places, values[i])
            _scale_rows(rows[i], places, slopes[i])
    return inputs, squares, values, slopes


@register_jitable
def _fill_inputs(X, scale, places, out):
    for i in range(len(places)):
        for a in range(X.shape[1]):
            out[a, i] = (X[places[i], a] - X[places[0], a]) * scale[a]


@register_jitable
def _fill_squares(inputs, scale, out):
    d, s = inputs.shape
    for i in range(s):
        for a in range(d):
            if scale[a] != 0.0:  # inputs that another factor is a function of
                for j in range(i + 1):
                    difference = inputs[a, i] - inputs[a, j]
                    out[i, j] += difference * difference


@register_jitable
def _fill_kernel(squares, kind, shape, values, slopes):
    """One loop for each kind: none chooses among kinds at each entry."""
    if kind == EXPQUAD:
        _fill_entries(squares, EXPQUAD, shape, values, slopes)
    elif kind == MATERN12:
        _fill_entries(squares, MATERN12, shape, values, slopes)
    elif kind == EXPONENTIAL:
        _fill_entries(squares, EXPONENTIAL, shape, values, slopes)
    elif kind == MATERN32:
        _fill_entries(squares, MATERN32, shape, values, slopes)
    elif kind == MATERN52:
        _fill_entries(squares, MATERN52, shape, values, slopes)
    elif kind == RATQUAD:
        _fill_entries(squares, RATQUAD, shape, values, slopes)
    else:
        _fill_entries(squares, ARC, shape, values, slopes)


@register_jitable
def _fill_entries(squares, kind, shape, values, slopes):
    for i in range(squares.shape[0]):
        for j in range(i + 1):
            values[i, j], slopes[i, j] = value_and_slope(squares[i, j], kind, shape)


@register_jitable
def _scale_rows(factors, places, values):
    own = np.empty(len(places))
    for i in range(len(places)):
        own[i] = factors[places[i]]
        for j in range(i + 1):
            values[i, j] *= own[i] * own[j]


@register_jitable
def sum_of_products(values, variance, terms):
    """``sum_q variance_q prod_t values_t`` (s, s), over the factors t of each summand q."""
    s = values.shape[1]
    out, part = np.zeros((s, s)), np.empty((s, s))
    for q in range(len(variance)):
        part[:] = variance[q]
        for t in range(len(terms)):
            if terms[t, 1] == q:
                part *= values[t]
        out += part
    return out


@register_jitable
def no_bars(scale, variance, shape, rows):
    """Zeros for the cotangents of the parameters."""
    return (np.zeros(scale.shape), np.zeros(variance.shape), np.zeros(shape.shape), np.zeros(rows.shape))


@register_jitable
def add_kernel_bars(factors, M_bar, scale, variance, shape, rows, terms, places, bars, X_bar):
    """Add a block's part to the cotangents of inverse lengthscales, variances, alphas and rows' factors.

    From the symmetric cotangent of the block, and what `block_factors` found there. That of the inputs is
    added to `X_bar` (n, d), unless it has no rows.
    """
    inputs, squares, values, slopes = factors
    scale_bar, variance_bar, shape_bar, rows_bar = bars
    s = len(places)
    weight = np.empty((s, s))
    for t in range(len(terms)):
        q = terms[t, 1]
        for i in range(s):
            weight[i, i] = M_bar[i, i]
            for j in range(i):
                weight[i, j] = 2.0 * M_bar[i, j]
        first = True
        for other in range(len(terms)):
            if other != t and terms[other, 1] == q:
                first &= other > t
                _scale_entries(weight, values[other])
        total = 0.0
        for i in range(s):
            for j in range(i + 1):
                total += weight[i, j] * values[t, i, j]
                slopes[t, i, j] *= weight[i, j] * variance[q]
        if first:  # of its summand
            variance_bar[q] += total
        if terms[t, 0] == RATQUAD or terms[t, 0] == ARC:
            for i in range(s):
                for j in range(i + 1):
                    change = shape_slope(squares[t, i, j], terms[t, 0], shape[t])
                    shape_bar[t] += variance[q] * weight[i, j] * values[t, i, j] * change
        if len(rows) > 0:
            _add_row_bars(weight, values[t], variance[q], rows[t], places, rows_bar[t])
        _add_scale_bars(inputs[t], slopes[t], scale[t], scale_bar[t])
        if len(X_bar) > 0:
            _add_input_bars(inputs[t], slopes[t], scale[t], places, X_bar)


@register_jitable
def _scale_entries(weight, values):
    for i in range(len(weight)):
        for j in range(i + 1):
            weight[i, j] *= values[i, j]


@register_jitable
def _add_row_bars(weight, values, variance, factors, places, out):
    change = np.zeros(len(places))
    for i in range(len(places)):
        total = 0.0
        for j in range(i + 1):
            each = weight[i, j] * values[i, j]
            total += each
            change[j] += each
        change[i] += total
    for i in range(len(places)):
        out[places[i]] += variance * change[i] / factors[places[i]]


@register_jitable
def _add_scale_bars(inputs, slopes, scale, out):
    d, s = inputs.shape
    columns = np.empty(s)  # one sum alone would wait for each addition before the next
    for a in range(d):
        if scale[a] == 0.0:
            continue
        for j in range(s):
            columns[j] = 0.0
        for i in range(s):
            for j in range(i):
                difference = inputs[a, i] - inputs[a, j]
                columns[j] += slopes[i, j] * difference * difference
        out[a] += 2.0 * columns.sum() / scale[a]


@register_jitable
def _add_input_bars(inputs, slopes, scale, places, X_bar):
    d, s = inputs.shape
    part = np.empty(s)
    for a in range(d):
        for i in range(s):
            part[i] = 0.0
            for j in range(i):
                change = slopes[i, j] * (inputs[a, i] - inputs[a, j])
                part[i] += change
                part[j] -= change
        for i in range(s):
            X_bar[places[i], a] += 2.0 * scale[a] * part[i]
