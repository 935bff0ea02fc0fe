"""The spectrum kernel's counts."""

from collections import Counter

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from pytensor.graph.traversal import ancestors

import pymc_scalable_gp as sgp
from pymc_scalable_gp.ops.numeric_gram import NumericGram

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


def test_a_function_that_is_nearly_symmetric_is_none():
    with pytest.raises(ValueError, match="the kernel function is not symmetric"):
        sgp.cov.FromFunction(lambda a, b: a * b * (1.0 + 1e-6 * (a > b)), [1.0, 2.0, 3.0])


def test_columns_of_a_function_are_kept():
    calls = []
    kernel = sgp.cov.FromFunction(lambda a, b: float(calls.append(1) is None and a == b), STRINGS)
    calls.clear()
    for places in ([1, 4], [4, 1, 4], [0, 4]):
        kernel.matrix(np.arange(7)[:, None], np.array(places)[:, None])
    assert len(calls) == 3 * len(STRINGS)  # of objects 0, 1 and 4


@pytest.mark.parametrize("place", [0.5, -1.0, 7.0])
def test_places_are_those_of_objects(place):
    kernel = sgp.cov.Spectrum(STRINGS)
    with pytest.raises(ValueError, match=f"row 1 of X is {place:g}, which is no place in the 7 objects"):
        kernel(np.array([[0.0], [place]]))


def test_histograms_of_either_side_are_not_negative():
    X, kernel, Z = np.ones((2, 2)), sgp.cov.HistogramIntersection(2), pm.Normal.dist(size=(2, 2))
    for pair in ((X, -X), (-X, X)):
        with pytest.raises(ValueError, match="needs non-negative columns"):
            kernel(*pair)
    K = kernel(X, Z)
    assert_allclose(K.eval({Z: X}), 2.0)
    assert np.isnan(K.eval({Z: -X})).all()


def test_random_histograms_have_a_gradient():
    """There was none, in silence, where the matrix follows them."""
    rng = np.random.default_rng(0)
    wide, Z, weights = rng.uniform(size=(5, 4)), rng.uniform(size=(3, 4)), rng.standard_normal((5, 9))
    X, kernel = pm.Normal.dist(size=(5, 4)), sgp.cov.HistogramIntersection(4, active_dims=[0, 3])
    K = pt.concatenate([kernel(X), kernel(X, Z), kernel(X, diag=True)[:, None]], axis=1)
    function = pytensor.function([X], [K, pt.grad((K * weights).sum(), X)])
    H, points = wide[:, [0, 3]], Z[:, [0, 3]]
    both = [np.minimum(H[:, None], other).sum(axis=2) for other in (H, points)]
    found, slope = function(wide)
    assert_allclose(found, np.hstack([*both, H.sum(axis=1)[:, None]]), rtol=1e-14)
    moves, step = rng.standard_normal((5, 4)), 1e-6  # no two numbers are so near: K is linear there
    change = [(function(wide + sign * step * moves)[0] * weights).sum() for sign in (1, -1)]
    assert_allclose((slope * moves).sum(), (change[0] - change[1]) / (2 * step), rtol=1e-8)
    assert np.isnan(function(wide - 1.0)[0][:, :8]).all()


def test_graphs_of_wide_histograms_are_small():
    """A term per column took seconds to compile, for each prediction too."""
    rng = np.random.default_rng(0)
    wide, Z = rng.uniform(size=(3, 50)), rng.uniform(size=(2, 50))
    for X, random in (pm.Normal.dist(size=(3, 50)), True), (pt.dmatrix(), False):
        K = sgp.cov.HistogramIntersection(50)(X, Z)
        found = list(ancestors([K]))
        assert len(found) < 100
        # New rows of a prediction are NumPy's to compare: fast, and without an array for each column.
        assert random != any(v.owner is not None and isinstance(v.owner.op, NumericGram) for v in found)
        assert_allclose(K.eval({X: wide}), np.minimum(wide[:, None], Z).sum(axis=2), rtol=1e-14)
