"""Log determinants by Lanczos quadrature: exact cases, gradients, back-ends."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pytensor.gradient import DisconnectedInputError
from pytensor.graph.fg import FunctionGraph

from pymc_scalable_gp.linops.structured import Dense, Kronecker, Masked, Toeplitz
from pymc_scalable_gp.ops import lanczos, stochastic_logdet
from pymc_scalable_gp.ops._jax import jax
from pymc_scalable_gp.ops._pruning import prune
from pymc_scalable_gp.ops.stochastic_logdet import StochasticLogdet
from pymc_scalable_gp.utils.compiled import IN_PYTHON

RNG = np.random.default_rng(0)
COLUMN = np.exp(-0.5 * np.arange(6.0) ** 2)
FACTOR = np.exp(-np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))))
PLACES = np.delete(np.arange(24), [3, 10])
PROBES = RNG.choice([-1.0, 1.0], (3, len(PLACES)))
MODES = ["NUMBA", *(["JAX"] if jax is not None else [])]
SELDOM = [pytest.param("NUMBA", marks=pytest.mark.slow), *MODES[1:]]  # the same loops, compiled again


def compiled(function, mode, steps=5):
    shift, column = pt.scalar(dtype="float64"), pt.vector(dtype="float64", shape=(6,))
    A = pt.matrix(dtype="float64", shape=(4, 4))
    operator = Masked(Kronecker([Toeplitz(column), A]), PLACES)
    value = function(operator, shift, PROBES, steps)
    inputs = [shift, column, A]
    return pytensor.function(inputs, [value, *pt.grad(value**2, inputs)], mode=mode)


def composed(operator, shift, probes, steps):
    """The same of Lanczos steps and the eigenvalues of their matrices."""
    total = 0.0
    for z in probes:
        _, alpha, beta = lanczos(operator, z, steps)
        T = pt.diag(alpha) + pt.diag(beta[:-1], 1) + pt.diag(beta[:-1], -1)
        values, vectors = pt.linalg.eigh(T)
        total = total + z @ z * (vectors[0] ** 2 * pt.log(values + shift)).sum()
    return total / len(probes)


VALUES = (np.array(0.3), COLUMN, FACTOR)


@pytest.fixture(scope="module")
def expected():
    return compiled(composed, IN_PYTHON)(*VALUES)


@pytest.mark.parametrize("mode", [IN_PYTHON, *SELDOM])
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
    function, step = compiled(stochastic_logdet, IN_PYTHON), 1e-6
    moves = [RNG.standard_normal(np.shape(v)) for v in VALUES]
    moves[2] = moves[2] + moves[2].T
    ends = [
        function(*(v + s * step * m for v, m in zip(VALUES, moves, strict=True)))[0] ** 2 for s in (1, -1)
    ]
    slope = sum((g * m).sum() for g, m in zip(function(*VALUES)[1:], moves, strict=True))
    assert_allclose((ends[0] - ends[1]) / (2 * step), slope, rtol=1e-6)


@pytest.mark.parametrize("mode", [IN_PYTHON, *SELDOM])
def test_gradients_in_shared_variables(mode, expected):
    """Whatever `pt.grad` asks for is connected; a constant is not."""
    shift, column, A = (pytensor.shared(v, shape=np.shape(v)) for v in VALUES)
    operator = Masked(Kronecker([Toeplitz(column), A]), PLACES)
    value = stochastic_logdet(operator, shift, PROBES, 5)
    slopes = pt.grad(value**2, [shift, column, A])
    function = pytensor.function([], [value, *slopes], mode=mode)
    for f, e in zip(function(), expected, strict=True):
        assert_allclose(f, e, rtol=1e-9, atol=1e-10)
    fixed = pt.constant(FACTOR)
    value = stochastic_logdet(Kronecker([Toeplitz(column), fixed]), shift, np.ones((1, 24)), 5)
    with pytest.raises(DisconnectedInputError):
        pt.grad(value, fixed)


def only_op(function):
    (node,) = [n for n in function.maker.fgraph.apply_nodes if isinstance(n.op, StochasticLogdet)]
    return node.op


def test_only_wanted_gradients_are_computed(expected):
    """The value alone needs no adjoint, and one parameter's gradient not the others'."""
    shift, column, A = (pytensor.shared(v, shape=np.shape(v)) for v in VALUES)
    operator = Masked(Kronecker([Toeplitz(column), A]), PLACES)
    value = stochastic_logdet(operator, shift, PROBES, 5)
    for wrt, places in ([], ()), ([shift], ()), ([column], (0,)), ([A, shift], (1,)):
        outputs = [value, *(pt.grad(value**2, wrt) if wrt else [])]
        function = pytensor.function([], outputs, mode=IN_PYTHON)
        assert only_op(function).wanted == places
        kept = [expected[0]] + [expected[1 + [shift, column, A].index(x)] for x in wrt]
        for f, e in zip(function(), kept, strict=True):
            assert_allclose(f, e, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("mode", [IN_PYTHON, *SELDOM])
def test_a_value_whose_gradients_were_dropped_can_be_differentiated(mode, expected):
    shift, column, A = (pt.tensor(dtype="float64", shape=np.shape(v)) for v in VALUES)
    operator = Masked(Kronecker([Toeplitz(column), A]), PLACES)
    graph = FunctionGraph([shift, column, A], [stochastic_logdet(operator, shift, PROBES, 5)], clone=False)
    prune.rewrite(graph)
    (value,) = graph.outputs
    assert value.owner.op.wanted == ()
    slopes = pt.grad(value**2, [shift, column, A])
    function = pytensor.function([shift, column, A], [value, *slopes], mode=mode)
    for f, e in zip(function(*VALUES), expected, strict=True):
        assert_allclose(f, e, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_jax_gradient_of_a_value_alone(expected):
    """numpyro and blackjax: JAX differentiates a function that was compiled for the value."""
    if jax is None:
        pytest.skip("needs the jax extra")
    shift, column, A = (pt.tensor(dtype="float64", shape=np.shape(v)) for v in VALUES)
    operator = Masked(Kronecker([Toeplitz(column), A]), PLACES)
    value = stochastic_logdet(operator, shift, PROBES, 5)
    function = pytensor.function([shift, column, A], value**2, mode="JAX").vm.jit_fn
    grads = jax.grad(lambda *a: function(*a)[0], argnums=(0, 1, 2))(*VALUES)
    for f, e in zip(grads, expected[1:], strict=True):
        assert_allclose(f, e, rtol=1e-8, atol=1e-10)
    (slope,) = jax.grad(lambda c: function(VALUES[0], c, VALUES[2])[0], argnums=(0,))(COLUMN)
    assert_allclose(slope, expected[2], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mode", [IN_PYTHON, *SELDOM])
def test_the_mean_over_no_probes_is_nan(mode):
    shift, probes, column = (pt.tensor(dtype="float64", shape=(None,) * n) for n in (0, 2, 1))
    value = stochastic_logdet(Toeplitz(pt.specify_shape(column, 6)), shift, probes, 3)
    function = pytensor.function(
        [shift, probes, column], [value, *pt.grad(value, [shift, column])], mode=mode
    )
    for found, shape in zip(function(0.3, np.zeros((0, 6)), COLUMN), ((), (), (6,)), strict=True):
        assert_array_equal(found, np.full(shape, np.nan), strict=True)
    assert np.isfinite(function(0.3, PROBES[:1, :6], COLUMN)[0])


def test_errors():
    with pytest.raises(ValueError, match="probes must have at least one row, got none"):
        stochastic_logdet(Dense(np.eye(3)), 1.0, np.ones((0, 3)), 2)
    with pytest.raises(ValueError, match="probes must have shape"):
        stochastic_logdet(Dense(np.eye(3)), 1.0, np.ones(3), 2)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        stochastic_logdet(Dense(np.eye(3)), 1.0, np.ones((1, 3)), 0)


def test_second_derivatives_are_refused():
    """They were those of the slope as a constant."""
    c = pt.scalar("c")
    found = stochastic_logdet(Dense(np.diag([0.0, 1.0, 3.0])), c, np.array([[1.0, -1.0, 1.0]]), 3)
    with pytest.raises(ValueError, match="can be differentiated"):
        pt.grad(pt.grad(found**2, c), c)
