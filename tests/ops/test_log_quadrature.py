"""Quadrature of the logarithm from Lanczos coefficients."""

import numpy as np
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import logm

from pymc_scalable_gp.linops.structured import Dense
from pymc_scalable_gp.ops import lanczos
from pymc_scalable_gp.ops.log_quadrature import LogQuadrature, log_quadrature
from pymc_scalable_gp.testing import check_op

RNG = np.random.default_rng(0)


def tridiagonal(alpha, beta):
    return np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1)


def reference(alpha, beta, shift):
    values, vectors = np.linalg.eigh(tridiagonal(alpha, beta))
    return vectors[0] ** 2 @ np.log(values + shift)


def twin(alpha, beta, shift):
    T = pt.diag(alpha) + pt.diag(beta[:-1], 1) + pt.diag(beta[:-1], -1)
    values, vectors = pt.linalg.eigh(T)
    return (vectors[0] ** 2 * pt.log(values + shift)).sum()


CASES = [
    (np.full(p, 3.0) + RNG.random(p), 0.7 + 0.3 * RNG.random(p), np.array(c))
    for p, c in [(6, 0.2), (2, 1.0), (11, 1e-3)]
]
CASES.append((np.array([2.0, 2.0, 2.0, 5.0]), np.array([0.5, 0.0, 0.3, 0.0]), np.array(0.4)))


def test_op():
    check_op(LogQuadrature, log_quadrature, reference, CASES, twin=twin, grad_rtol=1e-7)


def test_gradient_is_right_relative_to_each_entry():
    """Along a converged basis: entries far below rounding, which its adjoint multiplies up again."""
    beta = 0.2 / (1.0 + np.arange(25.0)) ** 2
    inputs = [pt.dvector(), pt.dvector(), pt.dscalar()]
    op = LogQuadrature()(*inputs)
    slope = op[0].owner.op.pullback(inputs, op, [pt.constant(1.0)] + [op[1].type()] * 3)[0]
    found = slope.eval(
        dict(zip(inputs, (np.ones(25), beta, np.array(1e-12)), strict=True)), mode="FAST_COMPILE"
    )
    assert found[-1] < 1e-80
    assert_allclose(found[9:-1] / found[8:-2], beta[8:-2] ** 2, rtol=0.3)


def test_a_full_run_is_the_logarithm_itself():
    A = RNG.standard_normal((7, 7))
    A, b = A @ A.T, RNG.standard_normal(7)
    _, alpha, beta = lanczos(Dense(A), b, 7)
    found = log_quadrature(alpha, beta, 0.3).eval(mode="FAST_COMPILE")
    assert_allclose(found, b @ logm(A + 0.3 * np.eye(7)) @ b / (b @ b), rtol=1e-10)


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_rounding_and_bad_values(mode):
    """Rounding below zero is lost in the shift; a shift that is not positive gives NaN."""
    value = log_quadrature(pt.constant([1.0, -1e-15]), pt.constant([0.0, 0.0]), pt.constant(1e-8))
    assert_allclose(value.eval(mode=mode), np.log(1.0 + 1e-8), rtol=1e-6, atol=1e-15)
    bad = log_quadrature(pt.constant([1.0]), pt.constant([0.0]), pt.constant(0.0))
    assert np.isnan(bad.eval(mode=mode))
