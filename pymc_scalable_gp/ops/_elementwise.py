"""Elementwise loops and sums without temporaries, for NumPy and Numba."""

import numpy as np
from numba.extending import overload


def multiply_by(out, factor):
    """``out *= factor`` for a vector and a number."""
    out *= factor


@overload(multiply_by)
def _multiply_by(out, factor):
    def impl(out, factor):
        for i in range(out.size):
            out[i] *= factor

    return impl


def fill_from(out, a):
    """``out = a`` for a vector and an array without dimensions, or with one or all entries.

    A slice assigned in Numba compiles text for its error message.
    """
    out[:] = a


@overload(fill_from)
def _fill_from(out, a):
    def number(out, a):
        for i in range(out.size):
            out[i] = a.item()

    def vector(out, a):
        for i in range(out.size):
            out[i] = a[0] if a.size == 1 else a[i]

    return number if a.ndim == 0 else vector


def subtract_from(out, a):
    """``out = a - out`` for vectors."""
    np.subtract(a, out, out=out)


@overload(subtract_from)
def _subtract_from(out, a):
    def impl(out, a):
        for i in range(out.size):
            out[i] = a[i] - out[i]

    return impl


def add(out, a):
    """``out += a`` for vectors."""
    out += a


@overload(add)
def _add(out, a):
    def impl(out, a):
        for i in range(out.size):
            out[i] += a[i]

    return impl


def subtract(out, a):
    """``out -= a`` for vectors."""
    out -= a


@overload(subtract)
def _subtract(out, a):
    def impl(out, a):
        for i in range(out.size):
            out[i] -= a[i]

    return impl


def add_multiple(out, factor, a):
    """``out += factor a`` for vectors and a number."""
    out += factor * a


@overload(add_multiple)
def _add_multiple(out, factor, a):
    def impl(out, factor, a):
        for i in range(out.size):
            out[i] += factor * a[i]

    return impl


def sum_product(a, b):
    """``sum(a * b)`` for vectors."""
    return np.dot(a, b)


@overload(sum_product)
def _sum_product(a, b):
    def impl(a, b):
        total = 0.0
        for i in range(a.size):
            total += a[i] * b[i]
        return total

    return impl


def all_finite(a):
    """Whether every entry is finite."""
    return bool(np.all(np.isfinite(a)))


@overload(all_finite)
def _all_finite(a):
    def impl(a):
        good = True
        for i in range(a.size):
            good = good and np.isfinite(a[i])
        return good

    return impl


def set_product(out, a, b):
    """``out = a * b`` for vectors."""
    np.multiply(a, b, out=out)


@overload(set_product)
def _set_product(out, a, b):
    def impl(out, a, b):
        for i in range(out.size):
            out[i] = a[i] * b[i]

    return impl


def add_product(out, a, b):
    """``out += a * b`` for vectors."""
    out += a * b


@overload(add_product)
def _add_product(out, a, b):
    def impl(out, a, b):
        for i in range(out.size):
            out[i] += a[i] * b[i]

    return impl


def set_ratio(out, a, b):
    """``out = a / b`` for vectors."""
    np.divide(a, b, out=out)


@overload(set_ratio)
def _set_ratio(out, a, b):
    def impl(out, a, b):
        for i in range(out.size):
            out[i] = a[i] / b[i]

    return impl


def all_positive(a):
    """Whether every entry is finite and above zero."""
    return bool(np.all(a > 0.0) and np.all(np.isfinite(a)))


@overload(all_positive)
def _all_positive(a):
    def impl(a):
        good = True
        for i in range(a.size):
            good = good and a[i] > 0.0 and np.isfinite(a[i])
        return good

    return impl


def sum_log(a):
    """``sum(log(a))`` for a vector."""
    return np.sum(np.log(a))


@overload(sum_log)
def _sum_log(a):
    def impl(a):
        total = 0.0
        for i in range(a.size):
            total += np.log(a[i])
        return total

    return impl


def add_square(out, scale, a):
    """``out += scale * a**2`` for a scalar and vectors."""
    out += scale * a * a


@overload(add_square)
def _add_square(out, scale, a):
    def impl(out, scale, a):
        for i in range(out.size):
            out[i] += scale * a[i] * a[i]

    return impl


def sum_product3(a, b, c):
    """``sum(a * b * c)`` for vectors."""
    return np.sum(a * b * c)


@overload(sum_product3)
def _sum_product3(a, b, c):
    def impl(a, b, c):
        total = 0.0
        for i in range(a.size):
            total += a[i] * b[i] * c[i]
        return total

    return impl


def feature_cotangent(out, u, a, b, c, phi):
    """``out = u * a - out * b - c * phi`` for a scalar u and vectors."""
    out *= -b
    out += u * a - c * phi


@overload(feature_cotangent)
def _feature_cotangent(out, u, a, b, c, phi):
    def impl(out, u, a, b, c, phi):
        for i in range(out.size):
            out[i] = u * a[i] - out[i] * b[i] - c[i] * phi[i]

    return impl
