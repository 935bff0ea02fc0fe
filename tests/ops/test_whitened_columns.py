"""Columns whitened by a Cholesky factor."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from marks import in_back_ends
from numpy.testing import assert_allclose
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_scalable_gp.ops.whitened_columns import whiten, whitened_columns
from pymc_scalable_gp.testing import check_op

RNG = np.random.default_rng(0)
JITTER = 1e-6


def case(m, r, rank=None):
    """M = K G for a random K of the given rank."""
    F = RNG.standard_normal((m, m if rank is None else rank))
    G = RNG.standard_normal((m, r))
    return F @ (F.T @ G), G


def reference(M, G):
    S = G.T @ M
    L = np.linalg.cholesky((S + S.T) / 2 + JITTER * np.trace(S) * np.eye(len(S)))
    return np.linalg.solve(L, M.T).T


def twin(M, G):
    S = G.T @ M
    L = cholesky(0.5 * (S + S.T) + JITTER * pt.trace(S) * pt.eye(S.shape[0]), lower=True)
    return solve_triangular(L, M.T, lower=True).T


def build(M, G):
    return whitened_columns(M, G, JITTER)


@in_back_ends
def test_op(modes):
    wide = case(5, 6)  # more directions than rows: S is deficient
    check_op(
        None,
        build,
        reference,
        [case(7, 3), case(4, 1), (np.asfortranarray(wide[0]), wide[1])],
        twin=twin,
        rtol=1e-8,
        jax_cases=2,
        modes=modes,
    )


def test_nothing_and_a_deficient_matrix():
    M, G = pt.dmatrix(), pt.dmatrix()
    value = build(M, G)
    function = pytensor.function([M, G], [value, *pt.grad(value.sum(), [M, G])], mode="NUMBA")
    for shape in ((0, 3), (3, 0)):
        assert all(found.shape == shape for found in function(np.zeros(shape), np.zeros(shape)))
    deficient = case(5, 4, rank=2)
    assert_allclose(function(*deficient)[0], reference(*deficient), rtol=1e-6)
    assert_allclose(whiten(*deficient, JITTER), reference(*deficient), rtol=1e-6)


def test_failure_is_nan():
    M, S = pt.dmatrix(), pt.dmatrix()
    value = build(M, S)
    for mode in ("FAST_COMPILE", "NUMBA"):
        function = pytensor.function([M, S], [value, *pt.grad(value.sum(), [M, S])], mode=mode)
        for found in function(np.diag([1.0, -1.0]), np.eye(2)):
            assert np.isnan(found).all()
