"""Fast Fourier transforms for Numba, which has none: of complex vectors of a power of two entries.

Radix 4, in place, with real and imaginary parts as separate vectors. The forward transform leaves its
result in the order in which the backward one takes it, with reversed digits: products of spectra do
not mind, and nothing has to be moved.
"""

import numpy as np
from numba.extending import register_jitable


@register_jitable
def circulant_length(m):
    """Smallest power of two that is at least ``2 m - 1``."""
    size = 1
    while size < 2 * m - 1:
        size *= 2
    return size


@register_jitable
def roots_of_unity(size):
    """``exp(-2 pi i k / l)``, k < l / 4, for the lengths l = size, size / 4, ... above 3, in turn."""
    real, imag = np.empty(size // 3 + 1), np.empty(size // 3 + 1)
    quarter = size // 4
    for k in range(quarter):
        real[k] = np.cos(2.0 * np.pi * k / size)
        imag[k] = -np.sin(2.0 * np.pi * k / size)
    first, stride = quarter, 4
    while quarter >= 4:
        quarter //= 4
        for k in range(quarter):
            real[first + k], imag[first + k] = real[k * stride], imag[k * stride]
        first += quarter
        stride *= 4
    return real[:first], imag[:first]


@register_jitable
def _pairs(x, y):
    """Transforms of length 2, their own inverses but for a factor 2."""
    for a in range(0, x.size, 2):
        x[a], x[a + 1] = x[a] + x[a + 1], x[a] - x[a + 1]
        y[a], y[a + 1] = y[a] + y[a + 1], y[a] - y[a + 1]


@register_jitable
def forward_fft(x, y, roots):
    """Overwrite ``x + i y`` by its transform, in the order of reversed digits."""
    real, imag = roots
    length, first = x.size, 0
    while length >= 4:
        q = length // 4
        for start in range(0, x.size, length):
            for k in range(q):
                a = start + k
                b, c, d = a + q, a + 2 * q, a + 3 * q
                c1, s1 = real[first + k], imag[first + k]
                c2, s2 = c1 * c1 - s1 * s1, 2.0 * c1 * s1
                c3, s3 = c1 * c2 - s1 * s2, c1 * s2 + s1 * c2
                x0, x1, x2 = x[a] + x[c], x[a] - x[c], x[b] + x[d]
                y0, y1, y2 = y[a] + y[c], y[a] - y[c], y[b] + y[d]
                x3, y3 = y[b] - y[d], x[d] - x[b]  # -i times the difference
                x[a], y[a] = x0 + x2, y0 + y2
                u, v = x1 + x3, y1 + y3
                x[b], y[b] = u * c1 - v * s1, u * s1 + v * c1
                u, v = x0 - x2, y0 - y2
                x[c], y[c] = u * c2 - v * s2, u * s2 + v * c2
                u, v = x1 - x3, y1 - y3
                x[d], y[d] = u * c3 - v * s3, u * s3 + v * c3
        first += q
        length = q
    if length == 2:
        _pairs(x, y)


@register_jitable
def backward_fft(x, y, roots):
    """Inverse of `forward_fft`, times the number of entries."""
    real, imag = roots
    q, first = x.size, real.size
    while q >= 4:
        q //= 4
    if q == 2:
        _pairs(x, y)
    while 4 * q <= x.size:
        first -= q
        for start in range(0, x.size, 4 * q):
            for k in range(q):
                a = start + k
                b, c, d = a + q, a + 2 * q, a + 3 * q
                c1, s1 = real[first + k], -imag[first + k]
                c2, s2 = c1 * c1 - s1 * s1, 2.0 * c1 * s1
                c3, s3 = c1 * c2 - s1 * s2, c1 * s2 + s1 * c2
                u1, v1 = x[b] * c1 - y[b] * s1, x[b] * s1 + y[b] * c1
                u2, v2 = x[c] * c2 - y[c] * s2, x[c] * s2 + y[c] * c2
                u3, v3 = x[d] * c3 - y[d] * s3, x[d] * s3 + y[d] * c3
                x0, x2, x1, x3 = x[a] + u2, x[a] - u2, u1 + u3, v3 - v1  # i times the difference
                y0, y2, y1, y3 = y[a] + v2, y[a] - v2, v1 + v3, u1 - u3
                x[a], y[a] = x0 + x1, y0 + y1
                x[b], y[b] = x2 + x3, y2 + y3
                x[c], y[c] = x0 - x1, y0 - y1
                x[d], y[d] = x2 - x3, y2 - y3
        q *= 4
