"""Least squares by QR."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops.qr_solve import qr_solve
from pymc_scalable_gp.testing import check_op

RNG = np.random.default_rng(0)


def case(n, r, k):
    return RNG.standard_normal((n, r)), RNG.standard_normal((n, k))


def twin(A, B):
    return pt.linalg.solve(A.T @ A, A.T @ B)


@pytest.mark.parametrize("modes", [(), pytest.param(("NUMBA",), marks=pytest.mark.slow)])
def test_op(modes):
    """Under Numba PyTensor's own Ops take most of a minute to compile."""
    strided = tuple(np.repeat(a, 2, axis=1)[:, ::2] for a in case(6, 2, 2))
    check_op(
        None,
        qr_solve,
        lambda A, B: np.linalg.lstsq(A, B, rcond=None)[0],
        [case(7, 3, 2), case(4, 4, 1), case(1, 1, 3), strided],
        twin=twin,
        modes=modes,
        rtol=1e-10,
        jax_cases=2,
    )


def test_a_vector_and_an_ill_conditioned_ridge():
    """Columns that nearly coincide: the normal equations would lose all digits."""
    Phi = np.vander(np.linspace(0, 1, 40), 12)
    A = np.vstack([Phi, 1e-7 * np.eye(12)])
    b = np.r_[np.sin(np.linspace(0, 3, 40)), np.zeros(12)]
    found = qr_solve(A, b).eval(mode="FAST_COMPILE")
    assert found.shape == (12,)
    expected = np.linalg.lstsq(A, b, rcond=None)[0]
    assert_allclose(found, expected, rtol=1e-5, atol=1e-8)  # condition number 1e8


@pytest.mark.parametrize("mode", ["FAST_COMPILE", pytest.param("NUMBA", marks=pytest.mark.slow)])
def test_dependent_columns_missing_rows_and_nan_give_nan(mode):
    A, B = pt.dmatrix(), pt.dmatrix()
    x = qr_solve(A, B)
    function = pytensor.function([A, B], [x, *pt.grad(x.sum(), [A, B])], mode=mode)
    full, right = case(5, 2, 1)
    u = np.random.default_rng(1).standard_normal((5, 1))
    for bad in (np.ones((5, 2)), np.full((5, 2), np.nan), u * [1.0, 1e4], u * [1e4, 1.0]):
        assert np.isnan(function(bad, right)[0]).all()
    assert np.isnan(function(np.ones((1, 2)), np.ones((1, 1)))[0]).all()
    assert np.isnan(function(np.zeros((0, 2)), np.zeros((0, 1)))[0]).all()
    assert function(np.zeros((3, 0)), np.ones((3, 1)))[0].shape == (0, 1)
    assert np.isfinite(function(full, right)[0]).all()


def test_needs_matrices():
    with pytest.raises(TypeError, match="A has 4 rows, and b has 5"):
        qr_solve(np.ones((4, 2)), np.ones(5))
    with pytest.raises(TypeError, match="qr_solve needs a matrix"):
        qr_solve(np.ones(3), np.ones(3))


@pytest.mark.parametrize("mode", ["FAST_COMPILE", pytest.param("NUMBA", marks=pytest.mark.slow)])
def test_second_derivatives(mode):
    A, B = pt.dmatrix(), pt.dmatrix()
    weights = np.arange(1.0, 11.0).reshape(5, 2)

    def second(solve):
        slopes = pt.grad((solve(A, B) ** 3).sum(), [A, B])
        total = sum((slope * weights).sum() for slope in slopes)
        return [*pt.grad(total, [A, B]), *pt.grad((slopes[0] ** 2).sum(), [A, B])]

    given = case(5, 2, 2)
    found = pytensor.function([A, B], second(qr_solve), mode=mode)(*given)
    expected = pytensor.function([A, B], second(twin), mode="FAST_COMPILE")(*given)
    for f, e in zip(found, expected, strict=True):
        assert_allclose(f, e, rtol=1e-9, atol=1e-9)
