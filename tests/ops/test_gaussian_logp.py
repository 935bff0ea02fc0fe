"""Dense Gaussian log density: values, gradients, back-ends, failure."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from marks import in_back_ends
from numpy.testing import assert_allclose
from scipy import stats

from pymc_scalable_gp.ops import _kernels
from pymc_scalable_gp.ops.gaussian_logp import GaussianLogp, gaussian_logp
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON

rng = np.random.default_rng(0)


def build(K, noise, e):
    return gaussian_logp(0.5 * (K + K.T), noise**2, e)


def twin(K, noise, e):
    S = 0.5 * (K + K.T) + pt.diag(noise**2)
    L = pt.linalg.cholesky(S)
    white = pt.linalg.solve_triangular(L, e, lower=True)
    n = e.shape[0]
    return -0.5 * (white**2).sum() - pt.log(pt.diag(L)).sum() - 0.5 * n * np.log(2 * np.pi)


def reference(K, noise, e):
    S = 0.5 * (K + K.T) + np.diag(noise**2)
    return stats.multivariate_normal.logpdf(e, np.zeros(len(e)), S)


def case(n):
    root = rng.standard_normal((n, 3))
    return root @ root.T, 0.5 + rng.uniform(size=n), rng.standard_normal(n)


@in_back_ends
def test_op(modes):
    """n = 70 is more than one tile of the gradient's copy."""
    K, noise, e = case(6)
    strided = np.asfortranarray(K)[::2, ::2], noise[::2], e[::-2]
    cases = [case(70), case(1), case(5), strided]
    check_op(GaussianLogp, build, reference, cases, twin=twin, differentiable=[0], modes=modes, jax_cases=1)


def test_in_blocks_of_rows_by_the_lower_triangle(monkeypatch):
    monkeypatch.setattr(_kernels, "_ROWS", 3)
    given = case(8)
    K, noise, e = map(pt.as_tensor, (given[0] + np.triu(np.full((8, 8), np.nan), 1), *given[1:]))
    logp = gaussian_logp(K, noise**2, e)
    assert_allclose(logp.eval(mode=IN_PYTHON), reference(*given), rtol=1e-12)
    S = given[0] + np.diag(given[1] ** 2)
    a = np.linalg.solve(S, given[2])
    slope = 0.5 * (np.outer(a, a) - np.linalg.inv(S))
    assert_allclose(pt.grad(logp, K).eval(mode=IN_PYTHON), slope, rtol=1e-10, atol=1e-12)


def test_the_lower_triangle_in_jax():
    pytest.importorskip("jax")
    K = pt.matrix(dtype="float64")
    value = gaussian_logp(K, np.zeros(2), np.ones(2))
    found = pytensor.function([K], [value, pt.grad(value, K)], mode="JAX")
    above = np.array([[2.0, 9.0], [0.5, 1.0]])
    for a, b in zip(found(above), found(np.array([[2.0, 0.5], [0.5, 1.0]])), strict=True):
        assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("mode", [IN_PYTHON, "NUMBA"])
def test_failure_gives_nan(mode):
    K = pt.matrix(dtype="float64")
    value = gaussian_logp(K, np.zeros(3), np.ones(3))
    function = pytensor.function([K], [value, pt.grad(value, K)], mode=mode)
    for bad in (np.diag([1.0, -1.0, 1.0]), np.diag([1.0, np.nan, 1.0])):
        value, slope = function(bad)
        assert np.isnan(value)
        assert np.isnan(slope).all()


@pytest.mark.parametrize("mode", [IN_PYTHON, "NUMBA", "JAX"], ids=["py", "numba", "jax"])
@pytest.mark.filterwarnings("error")
def test_overflow_gives_nan(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    K, noise, e = pt.matrix(dtype="float64"), np.zeros(3), pt.vector(dtype="float64")
    function = pytensor.function([K, e], gaussian_logp(K, noise, e), mode=mode)
    for scale, size in ((1e-300, 1e200), (1.0, 1e200)):
        assert np.isnan(function(scale * np.eye(3), np.full(3, size)))
