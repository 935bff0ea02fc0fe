"""Transforms of a power of two entries, in plain Python; under Numba in test_toeplitz.py."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops._fft import backward_fft, circulant_length, forward_fft, roots_of_unity


def reversed_digits(size):
    """Place of each frequency: base-4 digits reversed, with a last digit of base 2 where it is odd."""
    order = np.zeros(1, dtype=int)
    for base in [4] * (int(np.log2(size)) // 2) + [2] * (int(np.log2(size)) % 2):
        order = (order[:, None] + order.size * np.arange(base)).ravel()
    return order


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32, 1024, 2048])
def test_there_and_back(size):
    rng = np.random.default_rng(size)
    z = rng.standard_normal(size) + 1j * rng.standard_normal(size)
    x, y, roots = z.real.copy(), z.imag.copy(), roots_of_unity(size)
    forward_fft(x, y, roots)
    expected = np.fft.fft(z)
    scale = np.abs(expected).max()
    assert_allclose(x + 1j * y, expected[reversed_digits(size)], rtol=0, atol=3e-15 * scale)
    backward_fft(x, y, roots)
    assert_allclose((x + 1j * y) / size, z, rtol=0, atol=3e-15)


@pytest.mark.parametrize(("m", "size"), [(0, 1), (1, 1), (2, 4), (5, 16), (8, 16), (9, 32)])
def test_lengths_of_circulants(m, size):
    assert circulant_length(m) == size
