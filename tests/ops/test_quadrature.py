"""Quadrature of the logarithm from Lanczos coefficients."""

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import logm

from pymc_scalable_gp.linops.structured import Dense
from pymc_scalable_gp.ops import lanczos
from pymc_scalable_gp.ops._jax import jax
from pymc_scalable_gp.ops._quadrature import jax_quadrature, quadrature
from pymc_scalable_gp.utils.compiled import IN_PYTHON

RNG = np.random.default_rng(0)
CASES = [
    (np.full(p, 3.0) + RNG.random(p), 0.7 + 0.3 * RNG.random(p), c)
    for p, c in [(6, 0.2), (2, 1.0), (11, 1e-3)]
]
CASES.append((np.array([2.0, 2.0, 2.0, 5.0]), np.array([0.5, 0.0, 0.3, 0.0]), 0.4))
BACKENDS = [quadrature, numba.njit(lambda *values: quadrature(*values))]
if jax is not None:
    BACKENDS.append(jax.jit(jax_quadrature))
backends = pytest.mark.parametrize("run", BACKENDS, ids=["python", "numba", "jax"][: len(BACKENDS)])


@pytest.fixture(scope="module")
def by_eigenvalues():
    """Value and gradients from PyTensor's eigendecomposition."""
    inputs = alpha, beta, shift = pt.dvector(), pt.dvector(), pt.dscalar()
    values, vectors = pt.linalg.eigh(pt.diag(alpha) + pt.diag(beta[:-1], 1) + pt.diag(beta[:-1], -1))
    value = (vectors[0] ** 2 * pt.log(values + shift)).sum()
    return pytensor.function(inputs, [value, *pt.grad(value, inputs)], mode=IN_PYTHON)


@backends
def test_value_and_gradient(run, by_eigenvalues):
    for case in CASES:
        for found, expected in zip(run(*case), by_eigenvalues(*case), strict=True):
            assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_gradient_is_right_relative_to_each_entry():
    """Along a converged basis: entries far below rounding, which its adjoint multiplies up again."""
    beta = 0.2 / (1.0 + np.arange(25.0)) ** 2
    _, found, _, _ = quadrature(np.ones(25), beta, 1e-12)
    assert found[-1] < 1e-80
    assert_allclose(found[9:-1] / found[8:-2], beta[8:-2] ** 2, rtol=0.3)


def test_a_full_run_is_the_logarithm_itself():
    A = RNG.standard_normal((7, 7))
    A, b = A @ A.T, RNG.standard_normal(7)
    alpha, beta = (x.eval(mode="FAST_COMPILE") for x in lanczos(Dense(A), b, 7)[1:])
    found, *_ = quadrature(alpha, beta, 0.3)
    assert_allclose(found, b @ logm(A + 0.3 * np.eye(7)) @ b / (b @ b), rtol=1e-10)


@backends
def test_rounding_and_bad_values(run):
    """Rounding below zero is lost in the shift; a shift that is not positive gives NaN."""
    value, *_ = run(np.array([1.0, -1e-15]), np.zeros(2), 1e-8)
    assert_allclose(value, np.log(1.0 + 1e-8), rtol=1e-6, atol=1e-15)
    for alpha, shift in ((1.0, 0.0), (np.nan, 0.3)):
        assert np.isnan(run(np.array([alpha]), np.zeros(1), shift)[0])
