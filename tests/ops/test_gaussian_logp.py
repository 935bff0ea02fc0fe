"""Dense Gaussian log density: values, gradients, back-ends, failure."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_scalable_gp.ops.gaussian_logp import GaussianLogp, gaussian_logp
from pymc_scalable_gp.testing import PY, check_op

rng = np.random.default_rng(0)


def covariance(root, library):
    return root @ root.T + 0.5 * library.eye(root.shape[0])


def build(root, e):
    return gaussian_logp(root @ root.T + 0.5 * pt.diag(pt.ones_like(e)), e)


def twin(root, e):
    K = root @ root.T + 0.5 * pt.diag(pt.ones_like(e))
    L = pt.linalg.cholesky(K)
    white = pt.linalg.solve_triangular(L, e, lower=True)
    n = e.shape[0]
    return -0.5 * (white**2).sum() - pt.log(pt.diag(L)).sum() - 0.5 * n * np.log(2 * np.pi)


def reference(root, e):
    return stats.multivariate_normal.logpdf(e, np.zeros(len(e)), covariance(root, np))


def test_op():
    """n = 70 is more than one tile of the gradient's copy."""
    cases = [(rng.standard_normal((n, 3)), rng.standard_normal(n)) for n in (70, 1, 5)] + [
        (np.asfortranarray(rng.standard_normal((6, 4)))[::2], rng.standard_normal(6)[::2])
    ]
    check_op(GaussianLogp, build, reference, cases, twin=twin, differentiable=[0], jax_cases=1)


@pytest.mark.parametrize("mode", [PY, "NUMBA"])
def test_failure_gives_nan(mode):
    K = pt.matrix(dtype="float64")
    value = gaussian_logp(K, pt.ones(3))
    function = pytensor.function([K], [value, pt.grad(value, K)], mode=mode)
    for bad in (np.diag([1.0, -1.0, 1.0]), np.diag([1.0, np.nan, 1.0])):
        value, slope = function(bad)
        assert np.isnan(value)
        assert np.isnan(slope).all()
