"""Khatri-Rao features: values, leave-one-out gradient, shared partial products."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from marks import in_back_ends, often
from numpy.testing import assert_allclose, assert_array_equal

from pymc_scalable_gp.ops import khatri_rao_features
from pymc_scalable_gp.ops.khatri_rao import _NUMBA_BLOCK, ColumnProducts, KhatriRaoFeatures, product_tree
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON


def reference(idx):
    return lambda factors: np.prod(factors[:, idx], axis=2)


def plain(idx):
    def twin(factors):
        out = factors[:, idx[:, 0]]
        for i in range(1, idx.shape[1]):
            out = out * factors[:, idx[:, i]]
        return out

    return twin


def grid_indices(rng, r, d, m):
    """Multi-indices that mostly agree, as those of leading eigenfunctions do."""
    return np.minimum(rng.geometric(0.6, size=(r, d)) - 1, m - 1) + m * np.arange(d)


@in_back_ends
# n = 0, 1, one Numba block plus a rest; r > n and r < n; r = 0.
@pytest.mark.parametrize(
    ("d", "r"), often([(1, 4), (2, 6), (3, 9), (8, 20), (3, 0)], (1, 4), (3, 9), (3, 0))
)
def test_op(d, r, modes):
    rng = np.random.default_rng(d)
    idx = grid_indices(rng, r, d, 3)
    cases = [rng.standard_normal((n, 3 * d)) for n in (7, 0, 1, _NUMBA_BLOCK + 3)]
    strided = rng.standard_normal((2 * 7, 6 * d))[::2, ::-2]
    cases += [strided, np.asfortranarray(cases[0])]
    check_op(
        KhatriRaoFeatures,
        lambda f: khatri_rao_features(f, idx),
        reference(idx),
        [(f,) for f in cases],
        twin=plain(idx) if r else None,
        rtol=1e-13,  # d roundings a product
        grad_rtol=1e-12,
        modes=modes,
    )


def py_gradient(factors, idx, g):
    f = pt.matrix(dtype="float64")
    grad = pt.grad((khatri_rao_features(f, idx) * g).sum(), f)
    return pytensor.function([f], grad, mode=IN_PYTHON)(factors)


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_gradient_with_zero_factors_is_the_leave_one_out_product(zeros):
    """A quotient by the factor would give NaN or 0 here."""
    rng = np.random.default_rng(0)
    factors, idx = rng.standard_normal((4, 4)), np.array([[0, 1, 2, 3]])
    factors[2, :zeros] = 0.0
    g = rng.standard_normal((4, 1))
    others = [np.delete(factors, k, axis=1).prod(axis=1) for k in range(4)]
    assert_allclose(py_gradient(factors, idx, g), g * np.array(others).T, rtol=1e-14)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_features_that_are_all_equal_and_columns_used_twice(d):
    """Cotangents of equal features add up; a column used d times is a power."""
    rng = np.random.default_rng(1)
    factors, g = rng.standard_normal((5, 2)), rng.standard_normal((5, 10))
    idx = np.zeros((10, d), dtype=int)
    expected = np.zeros((5, 2))
    expected[:, 0] = g.sum(axis=1) * d * factors[:, 0] ** (d - 1)
    assert_allclose(py_gradient(factors, idx, g), expected, rtol=1e-13)


def test_tree_shares_partial_products():
    """1000 features of 64 dimensions that differ from the first in one or two places."""
    rng = np.random.default_rng(2)
    d, r = 64, 1000
    idx = np.zeros((r, d), dtype=int)
    for row in idx[1:]:
        row[rng.integers(d, size=2)] = rng.integers(1, 4, size=2)
    idx += 4 * np.arange(d)
    tree = product_tree(idx)
    inner = len(tree) - 1 - r
    assert inner < 4 * r  # without sharing: r (d - 2) = 62 000
    few = np.unique(idx[:, :2], axis=0)
    assert len(few) < r / 10  # ... since the first pair, for one, takes few values
    slots = np.empty((tree[0, 0] + inner, d * 4), dtype=bool)
    slots[: tree[0, 0]] = np.eye(d * 4, dtype=bool)[: tree[0, 0]]
    for target, left, right in tree[1 : inner + 1]:
        slots[target] = slots[left] | slots[right]
    for row, (_, left, right) in zip(idx, tree[inner + 1 :], strict=True):
        assert_array_equal(np.flatnonzero(slots[left] | slots[right]), np.sort(row))


def test_nonfinite_factors_propagate():
    factors = np.ones((2, 2))
    factors[0, 1] = np.nan
    f = pt.matrix(dtype="float64")
    value = pytensor.function([f], khatri_rao_features(f, np.array([[0, 1], [0, 0]])), mode=IN_PYTHON)
    assert_array_equal(np.isnan(value(factors)), [[True, False], [False, False]])


@pytest.mark.parametrize("idx", [np.zeros((2, 0), int), np.zeros(3, int), np.zeros((2, 2))])
def test_bad_indices(idx):
    with pytest.raises(ValueError, match=r"idx must hold integers \(r, d >= 1\), got"):
        khatri_rao_features(np.ones((2, 2)), idx)


@pytest.mark.parametrize("build", [np.asarray, ColumnProducts.of])
def test_indices_count_from_zero(build):
    with pytest.raises(ValueError, match="idx must count the columns of factors from 0, got -1"):
        khatri_rao_features(np.ones((2, 2)), build(np.array([[0, -1]])))


def test_index_beyond_the_known_columns():
    with pytest.raises(ValueError, match="idx has column 5 of factors, which have 2 columns"):
        khatri_rao_features(np.ones((3, 2)), np.array([[0, 5]]))


@pytest.mark.parametrize("mode", [IN_PYTHON, "NUMBA", "JAX"], ids=["py", "numba", "jax"])
def test_index_beyond_the_columns_gives_nan(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    f = pt.matrix(dtype="float64")
    value = khatri_rao_features(f, np.array([[0, 5], [0, 1]]))
    function = pytensor.function([f], [value, pt.grad(value.sum(), f)], mode=mode)
    for found in function(np.ones((3, 2))):
        assert np.isnan(np.asarray(found)).all()


def test_a_vector_of_factors_is_refused():
    with pytest.raises(TypeError, match="needs inputs of"):
        khatri_rao_features(np.arange(4.0), np.array([[0, 1]]))
