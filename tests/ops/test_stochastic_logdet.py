"""Log determinants by Lanczos quadrature: exact cases, gradients, back-ends."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.linops.structured import Dense, Kronecker, Masked, Toeplitz
from pymc_scalable_gp.ops import lanczos, log_quadrature, stochastic_logdet
from pymc_scalable_gp.ops._jax import jax
from pymc_scalable_gp.testing import PY

RNG = np.random.default_rng(0)
COLUMN = np.exp(-0.5 * np.arange(6.0) ** 2)
FACTOR = np.exp(-np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))))
PLACES = np.delete(np.arange(24), [3, 10])
PROBES = RNG.choice([-1.0, 1.0], (3, len(PLACES)))
MODES = ["NUMBA", *(["JAX"] if jax is not None else [])]


def compiled(function, mode, steps=5):
    shift, column = pt.scalar(dtype="float64"), pt.vector(dtype="float64", shape=(6,))
    A = pt.matrix(dtype="float64", shape=(4, 4))
    operator = Masked(Kronecker([Toeplitz(column), A]), PLACES)
    value = function(operator, shift, PROBES, steps)
    inputs = [shift, column, A]
    return pytensor.function(inputs, [value, *pt.grad(value**2, inputs)], mode=mode)


def composed(operator, shift, probes, steps):
    """The same of the Ops for Lanczos steps and quadrature."""
    total = 0.0
    for z in probes:
        _, alpha, beta = lanczos(operator, z, steps)
        total = total + z @ z * log_quadrature(alpha, beta, shift)
    return total / len(probes)


VALUES = (np.array(0.3), COLUMN, FACTOR)


@pytest.fixture(scope="module")
def expected():
    return compiled(composed, PY)(*VALUES)


@pytest.mark.parametrize("mode", [PY, *MODES])
def test_value_and_gradient(mode, expected):
    found = compiled(stochastic_logdet, mode)(*VALUES)
    for f, e in zip(found, expected, strict=True):
        assert_allclose(f, e, rtol=1e-9, atol=1e-10)


def test_jax_gradient_of_the_op(expected):
    if jax is None:
        pytest.skip("needs the jax extra")
    function = compiled(stochastic_logdet, "JAX").vm.jit_fn
    grads = jax.grad(lambda *a: function(*a)[0] ** 2, argnums=(0, 1, 2))(*VALUES)
    for f, e in zip(grads, expected[1:], strict=True):
        assert_allclose(f, e, rtol=1e-8, atol=1e-10)


def test_axes_as_probes_give_the_determinant():
    """The mean over unit vectors times n is the trace of the logarithm; full runs are exact."""
    A = RNG.standard_normal((8, 8))
    A = A @ A.T
    value = stochastic_logdet(Dense(A), 0.2, np.sqrt(8.0) * np.eye(8), 8)
    expected = np.linalg.slogdet(A + 0.2 * np.eye(8))[1]
    assert_allclose(value.eval(mode="FAST_COMPILE"), expected, rtol=1e-10)


def test_against_differences():
    function, step = compiled(stochastic_logdet, PY), 1e-6
    moves = [RNG.standard_normal(np.shape(v)) for v in VALUES]
    moves[2] = moves[2] + moves[2].T
    ends = [
        function(*(v + s * step * m for v, m in zip(VALUES, moves, strict=True)))[0] ** 2
        for s in (1, -1)
    ]
    slope = sum((g * m).sum() for g, m in zip(function(*VALUES)[1:], moves, strict=True))
    assert_allclose((ends[0] - ends[1]) / (2 * step), slope, rtol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match="probes must have shape"):
        stochastic_logdet(Dense(np.eye(3)), 1.0, np.ones(3), 2)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        stochastic_logdet(Dense(np.eye(3)), 1.0, np.ones((1, 3)), 0)
