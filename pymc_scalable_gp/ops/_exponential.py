"""An exponential that a loop evaluates for several entries at once.

Numba calls the C library's for one number after the other, which is most of the time that a kernel matrix
takes. Arithmetic alone becomes vector instructions.
"""

from math import factorial

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._numba import in_numba
from pymc_scalable_gp.utils.internals import float_of_bits

_LOWEST, _HIGHEST = -708.0, 709.0  # beyond, the result would be subnormal, or overflow
_PER_LOG2 = 1.0 / np.log(2.0)
# log 2 in two parts: a whole number times the first is exact.
_LOG2_HIGH, _LOG2_LOW = 6.93145751953125e-1, 1.42860682030941723212e-6
_C = tuple(1.0 / factorial(order) for order in range(14))


@register_jitable
def _series(r):
    """``exp(r) - 1 - r`` for small r, over r squared."""
    p = _C[13]
    p = p * r + _C[12]
    p = p * r + _C[11]
    p = p * r + _C[10]
    p = p * r + _C[9]
    p = p * r + _C[8]
    p = p * r + _C[7]
    p = p * r + _C[6]
    p = p * r + _C[5]
    p = p * r + _C[4]
    p = p * r + _C[3]
    return p * r + _C[2]


def exponential(x):
    """``exp(x)`` of a number, to the last digit but one; below -708 it is 0, above 709 infinite."""
    return np.exp(x)


@in_numba(exponential)
def _exponential(x):
    power = np.floor(min(max(x, _LOWEST), _HIGHEST) * _PER_LOG2 + 0.5)
    r = (x - power * _LOG2_HIGH) - power * _LOG2_LOW
    value = (1.0 + (r + r * r * _series(r))) * float_of_bits((np.int64(power) + 1023) << 52)
    value = 0.0 if x < _LOWEST else value
    return np.inf if x > _HIGHEST else value
