"""The spectrum kernel's counts."""

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp

STRINGS = ["abcabcabc", "ABCabc", "a  b   c", "ab\tab\nab", "äöüäöü", "....,,..", "abc"]


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("normalize", [True, False])
def test_spectrum_counts_every_substring(k, normalize):
    """Runs of spaces, capitals, punctuation and letters beyond ASCII count as they stand."""
    counts = [Counter(s[a : a + k] for a in range(len(s) - k + 1)) for s in STRINGS]
    K = np.array([[sum(a[part] * b[part] for part in a) for b in counts] for a in counts], float)
    if normalize:
        K /= np.sqrt(np.outer(np.diag(K), np.diag(K)))
    kernel = sgp.cov.Spectrum(STRINGS, k, normalize=normalize)
    X = np.arange(len(STRINGS))[:, None]
    assert_allclose(kernel.matrix(X, X), K, rtol=1e-14)
    assert_allclose(kernel.diagonal(X), np.diag(K), rtol=1e-14)


@pytest.mark.parametrize(("k", "error"), [(0, ValueError), (1.5, TypeError), (4, ValueError)])
def test_spectrum_refuses_other_lengths(k, error):
    with pytest.raises(error, match="k must be|is shorter than k=4"):
        sgp.cov.Spectrum(STRINGS, k)


@pytest.mark.parametrize(
    "kernel", [sgp.cov.FromFunction(lambda a, b: float(a == b), STRINGS), sgp.cov.Spectrum(STRINGS)]
)
def test_no_rows_have_an_empty_matrix(kernel):
    some, none = np.arange(3)[:, None], np.zeros((0, 1))
    found = [kernel.matrix(none, none), kernel.matrix(some, none), kernel.matrix(none, some)]
    assert [K.shape for K in found] == [(0, 0), (3, 0), (0, 3)]
    assert kernel.diagonal(none).shape == (0,)


def test_a_set_has_no_order_and_a_lengthscale_is_positive():
    with pytest.raises(TypeError, match="a set has no order"):
        sgp.cov.FromFunction(lambda a, b: float(a == b), {"a", "b"})
    with pytest.raises(ValueError, match="ls must be positive, got -1"):
        sgp.cov.Hamming(1, ls=-1.0)
