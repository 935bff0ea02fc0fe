"""Lanczos bases of structured operators: against unrolled steps, differences and other back-ends."""

import gc
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from pytensor.gradient import DisconnectedInputError
from scipy.linalg import toeplitz

from pymc_scalable_gp.linops.base import Diagonal
from pymc_scalable_gp.linops.structured import Dense, Kronecker, Masked, Toeplitz
from pymc_scalable_gp.ops import lanczos, stochastic_logdet
from pymc_scalable_gp.ops._jax import jax
from pymc_scalable_gp.ops.lanczos import Lanczos, LanczosAdjoint
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.compiled import IN_PYTHON

# Of arrays that are not contiguous, which Numba copies in every product.
pytestmark = pytest.mark.filterwarnings("error::numba.core.errors.NumbaPerformanceWarning")

RNG = np.random.default_rng(0)
N, STEPS = 24, 6
X = np.linspace(0.0, 6.0, N)
COLUMN = np.exp(-0.5 * X**2)
PLACES = np.delete(np.arange(N), [3, 4, 11])
B = RNG.standard_normal(N)
MODES = ["NUMBA", *(["JAX"] if jax is not None else [])]
SELDOM = [pytest.param("NUMBA", marks=pytest.mark.slow), *MODES[1:]]  # the same loops, compiled again


def dense(A):
    return Dense(A), A


def masked_grid(column, A, d):
    """Two Toeplitz-and-dense factors, some cells missing, plus a diagonal."""
    lag = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    full = (column[lag][:, None, :, None] * A[None, :, None, :]).reshape((24, 24))
    operator = Masked(Kronecker([Toeplitz(column), A]), PLACES).add_diagonal(d)
    return operator, full[PLACES][:, PLACES] + d * pt.eye(len(PLACES))


CASES = {
    "dense": (dense, [toeplitz(COLUMN)], B),
    "strided": (dense, [np.repeat(toeplitz(COLUMN), 2, axis=1)[:, ::2]], np.repeat(B, 3)[::3]),
    "grid": (masked_grid, [COLUMN[:6], toeplitz(COLUMN[:4]), np.array(0.3)], B[PLACES]),
}


def unrolled(A, b, steps):
    """The basis by Gram-Schmidt of A q, in plain operations."""
    Q, alpha, beta = [b / pt.sqrt((b**2).sum())], [], []
    for j in range(steps):
        w = A @ Q[j]
        alpha.append(Q[j] @ w)
        for _ in range(2):
            basis = pt.stack(Q, axis=1)
            w = w - basis @ (basis.T @ w)
        beta.append(pt.sqrt((w**2).sum()))
        Q.append(w / beta[j])
    return pt.stack(Q, axis=1), pt.stack(alpha), pt.stack(beta)


def value_and_gradients(outputs, wrt, weights):
    value = sum((o * w).sum() for o, w in zip(outputs, weights, strict=True) if w is not None)
    return [*outputs, value, *pt.grad(value, wrt)]


def compiled(case, function, weights, mode, steps=STEPS):
    build, values, b = CASES[case]
    parameters = [pt.tensor(dtype="float64", shape=v.shape) for v in values]
    start = pt.vector(dtype="float64", shape=b.shape)
    operator, matrix = build(*parameters)
    outputs = (lanczos if function is lanczos else unrolled)(
        operator if function is lanczos else matrix, start, steps
    )
    inputs = [*parameters, start]
    return pytensor.function(inputs, value_and_gradients(outputs, inputs, weights), mode=mode)


def weights_of(case, kinds="Qab"):
    n = len(CASES[case][2])
    shapes = {"Q": (n, STEPS + 1), "a": STEPS, "b": STEPS}
    return [RNG.standard_normal(shape) if k in kinds else None for k, shape in shapes.items()]


def symmetric(arrays):
    """Gradients in a symmetric matrix are compared by their symmetric parts."""
    square = [a.ndim == 2 and a.shape[0] == a.shape[1] for a in arrays]
    return [a + a.T if s else a for a, s in zip(map(np.asarray, arrays), square, strict=True)]


@pytest.mark.parametrize(
    ("case", "kinds"),
    [pytest.param(case, "Qab", marks=pytest.mark.slow if case == "strided" else ()) for case in CASES]
    + [pytest.param("dense", kinds, marks=pytest.mark.slow) for kinds in ("ab", "Q")],
)
def test_against_unrolled_steps(case, kinds):
    weights, (_, values, b) = weights_of(case, kinds), CASES[case]
    found = compiled(case, lanczos, weights, IN_PYTHON)(*values, b)
    expected = compiled(case, unrolled, weights, IN_PYTHON)(*values, b)
    for f, e in zip(symmetric(found), symmetric(expected), strict=True):
        # Q does not depend on a multiple of the identity: that gradient is zero to rounding.
        assert_allclose(f, e, rtol=1e-7, atol=1e-9 * max(np.abs(e).max(), 1.0))


CASE_AND_MODE = [("dense", m) for m in MODES] + [
    pytest.param("grid", m, marks=pytest.mark.slow if m == "NUMBA" else ()) for m in MODES
]


@pytest.mark.parametrize(("case", "mode"), CASE_AND_MODE)
def test_back_ends(case, mode):
    weights, (_, values, b) = weights_of(case), CASES[case]
    found = compiled(case, lanczos, weights, mode)(*values, b)
    expected = compiled(case, lanczos, weights, IN_PYTHON)(*values, b)
    for f, e in zip(found, expected, strict=True):
        assert_allclose(f, e, rtol=1e-7, atol=1e-9 * np.abs(np.asarray(e)).max())


@pytest.mark.slow
def test_jax_gradient_of_the_op():
    """JAX's own differentiation of the compiled function uses the same adjoint."""
    if jax is None:
        pytest.skip("needs the jax extra")
    _, values, b = CASES["grid"]
    weights = weights_of("grid")
    function = compiled("grid", lanczos, weights, "JAX").vm.jit_fn
    grads = jax.grad(lambda *a: function(*a)[3], argnums=(0, 1, 2, 3))(*values, b)
    expected = compiled("grid", lanczos, weights, IN_PYTHON)(*values, b)[4:]
    for f, e in zip(grads, expected, strict=True):
        assert_allclose(f, e, rtol=1e-7, atol=1e-9 * np.abs(e).max())


def test_against_differences():
    weights, (_, values, b) = weights_of("grid"), CASES["grid"]
    function = compiled("grid", lanczos, weights, IN_PYTHON)
    directions = [RNG.standard_normal(np.shape(v)) for v in (*values, b)]
    directions[1] = directions[1] + directions[1].T
    grads = function(*values, b)[4:]
    slope = sum((g * d).sum() for g, d in zip(grads, directions, strict=True))
    step = 1e-6
    ends = [
        function(*(v + s * step * d for v, d in zip((*values, b), directions, strict=True)))[3]
        for s in (1, -1)
    ]
    assert_allclose((ends[0] - ends[1]) / (2 * step), slope, rtol=1e-5)  # differences err by 3e-6


@pytest.mark.parametrize("mode", ["FAST_COMPILE", *SELDOM])
def test_steps_that_matter_to_nothing_leave_the_gradient_alone(mode):
    """Four eigenvalues, nearly equal: derivatives of steps after four are rounding, and huge.

    Cotangents as large as rounding makes them where they should be zero must not meet those.
    """
    vectors = np.linalg.qr(np.random.default_rng(5).standard_normal((N, N)))[0]
    eigenvalues = 1.0 + 0.01 * np.repeat([0.0, 1.0, 2.0, 3.5], N // 4)
    A = pt.matrix("A", shape=(N, N))
    _, alpha, beta = lanczos(dense(A)[0], pt.constant(B), 16)
    found = []
    for noise in (1e-13, 0.0):
        late = np.concatenate([[1.0, 0.3, 0.1], np.full(13, noise)])
        found.append(pytensor.grad((late * (alpha + beta)).sum(), A))
    function = pytensor.function([A], found, mode=mode)
    noisy, clean = function((vectors * eigenvalues) @ vectors.T)
    assert np.abs(clean).max() < 10.0
    assert_allclose(noisy, clean, rtol=1e-9, atol=1e-9)


def test_recurrence_and_conjugate_gradients():
    """``A Q = Q T + beta q e'``, and the span holds the search directions of conjugate gradients."""
    A = toeplitz(COLUMN) + 0.1 * np.eye(N)
    Q, alpha, beta = (v.eval() for v in lanczos(Dense(A), B, STEPS))
    assert_allclose(Q.T @ Q, np.eye(STEPS + 1), atol=1e-13)
    T = np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1)
    rest = beta[-1] * np.outer(Q[:, -1], np.eye(STEPS)[-1])
    assert_allclose(A @ Q[:, :-1], Q[:, :-1] @ T + rest, atol=1e-13)
    r, s = B.copy(), B.copy()
    for _ in range(STEPS):
        inside = Q[:, :-1] @ (Q[:, :-1].T @ s)
        assert_allclose(inside, s, atol=1e-10)  # conjugate directions lose digits themselves
        step = (r @ r) / (s @ A @ s)
        new = r - step * (A @ s)
        r, s = new, new + (new @ new) / (r @ r) * s


@pytest.mark.parametrize("mode", [IN_PYTHON, *SELDOM])
def test_invariant_space_ends_the_basis(mode):
    """Rank 3 and a start vector inside: three directions, then zeros; the gradient stays finite."""
    factor = RNG.standard_normal((N, 3))
    F = pt.matrix(dtype="float64", shape=(N, 3))
    b = pt.vector(dtype="float64", shape=(N,))
    outputs = lanczos(Dense(product(F, F, transpose_b=True)), b, STEPS)
    value = pt.log1p(outputs[1]).sum() + (outputs[2] ** 2).sum()
    function = pytensor.function([F, b], [*outputs, value, *pt.grad(value, [F, b])], mode=mode)
    start = factor @ np.ones(3)
    Q, alpha, beta, value, *grads = function(factor, start)
    assert (np.asarray(alpha)[3:] == 0).all()
    assert (np.asarray(beta)[2:] == 0).all()
    assert (np.asarray(Q)[:, 3:] == 0).all()
    assert_allclose(np.trace(factor.T @ factor), np.asarray(alpha).sum(), rtol=1e-12)
    direction, step = RNG.standard_normal((N, 3)), 1e-6
    ends = [function(factor + s * step * direction, (factor + s * step * direction) @ np.ones(3))[3]
            for s in (1, -1)]  # fmt: skip
    slope = (grads[0] * direction).sum() + grads[1] @ (direction @ np.ones(3))
    assert_allclose((ends[0] - ends[1]) / (2 * step), slope, rtol=1e-6)


@pytest.mark.parametrize("mode", [IN_PYTHON, *SELDOM])
def test_nan_stays_nan(mode):
    """From the start vector, and from the matrix, where only the first vector is without it."""
    A, b = pt.matrix(dtype="float64", shape=(5, 5)), pt.vector(dtype="float64", shape=(5,))
    outputs = lanczos(Dense(A), b, 3)
    total = sum(o.sum() for o in outputs)
    function = pytensor.function([A, b], [*outputs, *pt.grad(total, [A, b])], mode=mode)
    good, start = np.diag(np.arange(1.0, 6.0)), np.ones(5)
    for found in function(good, np.where(np.arange(5) == 2, np.nan, start)):
        assert np.isnan(np.asarray(found)).all()
    bad = good.copy()
    bad[1, 1] = np.nan
    Q, alpha, beta, *grads = map(np.asarray, function(bad, start))
    assert_allclose(Q[:, 0], start / np.sqrt(5.0))
    for found in (Q[:, 1:], alpha, beta, *grads):
        assert np.isnan(found).all()


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_and_zero_starts(n):
    """Fewer rows than steps, none, and a start vector of zeros."""
    A = 2.0 * np.eye(n)
    for b in (np.ones(n), np.zeros(n)):
        A_t, b_t = pt.matrix(dtype="float64"), pt.vector(dtype="float64")
        outputs = lanczos(Dense(A_t), b_t, 4)
        total = sum(o.sum() for o in outputs)
        function = pytensor.function([A_t, b_t], [*outputs, *pt.grad(total, [A_t, b_t])], mode=IN_PYTHON)
        Q, alpha, _beta, *grads = function(A, b)
        assert Q.shape == (n, 5)
        assert np.linalg.matrix_rank(Q) == int(b.any())
        assert_allclose(alpha[0], 2.0 if b.any() else 0.0)
        assert all(np.isfinite(g).all() for g in grads)


@pytest.mark.parametrize("mode", [IN_PYTHON, *SELDOM])
def test_gradients_in_shared_variables(mode):
    """Of every parameter, random or not."""
    build, values, b = CASES["grid"]
    weights = weights_of("grid")
    expected = compiled("grid", lanczos, weights, IN_PYTHON)(*values, b)
    inputs = [pytensor.shared(v, shape=np.shape(v)) for v in (*values, b)]
    outputs = lanczos(build(*inputs[:-1])[0], inputs[-1], STEPS)
    function = pytensor.function([], value_and_gradients(outputs, inputs, weights), mode=mode)
    for f, e in zip(function(), expected, strict=True):
        assert_allclose(f, e, rtol=1e-7, atol=1e-9 * np.abs(np.asarray(e)).max())


class Scattered:
    """A kernel matrix of data X, formed anew for each product: no operator of this package."""

    def __init__(self, X, ell, places):
        self.X, self.ell, self.places = X, ell, places
        self.shape = (N, N)
        self.parameters = X, ell, places

    def matmat(self, V):
        """The lengths of V's columns are all that is kept."""
        difference = self.X[self.places][:, None] - self.X[self.places]
        return product(pt.exp(-0.5 * (difference / self.ell) ** 2), V)


def test_only_wanted_gradients_are_computed():
    """Data that are parameters cost nothing unless their own gradient is asked for."""
    X_value = RNG.uniform(0, 6, N)
    X, ell = pytensor.shared(X_value, shape=(N,)), pt.dscalar()
    places = pytensor.shared(np.arange(N), shape=(N,))
    operator = Scattered(X, ell, places)
    _, alpha, _ = lanczos(operator, B, STEPS)
    value = (alpha**2).sum()
    for wrt, wanted in ([ell], (1,)), ([X], (0,)), ([ell, X], (0, 1)):
        slopes = pt.grad(value, wrt)
        function = pytensor.function([ell], [value, *slopes], mode=IN_PYTHON)
        (op,) = [n.op for n in function.maker.fgraph.apply_nodes if isinstance(n.op, LanczosAdjoint)]
        assert op.wanted == wanted
        _, *found = function(0.8)
        K = pt.exp(-0.5 * ((X[:, None] - X) / ell) ** 2)
        dense = (unrolled(K, B, STEPS)[1] ** 2).sum()
        expected = pytensor.function([ell], pt.grad(dense, wrt), mode=IN_PYTHON)(0.8)
        for f, e in zip(found, expected, strict=True):
            assert_allclose(f, e, rtol=1e-7, atol=1e-8)
    with pytest.raises(DisconnectedInputError):
        pt.grad(value, places)


@pytest.mark.slow
def test_ops_of_one_operator_share_its_products():
    operator, other = Dense(COLUMN[:, None] * COLUMN), Dense(COLUMN[:, None] * COLUMN)
    first = lanczos(operator, B, STEPS)[0].owner.inputs[0].owner.op
    again = stochastic_logdet(operator, 1.0, B[None], STEPS).owner.op
    assert isinstance(first, Lanczos)
    assert first.products is again.products
    assert first == lanczos(operator, 2.0 * B, STEPS)[0].owner.inputs[0].owner.op
    assert first != lanczos(other, B, STEPS)[0].owner.inputs[0].owner.op
    held = weakref.ref(operator)
    del operator
    gc.collect()
    assert held() is None


class Scaling(NamedTuple):
    """The identity times a number, which has no weak references."""

    factor: Any
    shape = 3, 3

    @property
    def parameters(self):
        return (self.factor,)

    def matmat(self, V):
        return self.factor * V


@dataclass
class WithoutHash:
    """The same, without a hash, which a dataclass has if it is frozen."""

    factor: Any
    shape, parameters, matmat = Scaling.shape, Scaling.parameters, Scaling.matmat


@pytest.mark.parametrize("kind", [Scaling, WithoutHash])
def test_operators_of_any_class(kind):
    factor, b = pt.dscalar(), np.ones(3)
    _, alpha, _ = lanczos(kind(factor), b, 1)
    logdet = stochastic_logdet(kind(factor), 1.0, b[None], 1)
    outputs = [alpha[0], logdet, *(pt.grad(value, factor) for value in (alpha[0], logdet))]
    found = pytensor.function([factor], outputs, mode=IN_PYTHON)(2.0)
    assert_allclose(found, [2.0, 3.0 * np.log(3.0), 1.0, 1.0], rtol=1e-14)


def test_shapes_dtypes_and_errors():
    Q, alpha, beta = lanczos(Diagonal(np.ones(5)), np.ones(5, dtype="float32"), 3)
    assert (Q.type.shape, alpha.type.shape, beta.type.shape) == ((5, 4), (3,), (3,))
    assert Q.dtype == "float64"
    with pytest.raises(ValueError, match="steps must be at least 1"):
        lanczos(Diagonal(np.ones(5)), np.ones(5), 0)
    with pytest.raises(ValueError, match="b must be a vector"):
        lanczos(Diagonal(np.ones(5)), np.ones((5, 1)), 2)
    for operator in Dense(np.ones((2, 3))), Dense(np.ones((3, 2))):
        with pytest.raises(ValueError, match=r"operator must be square, got shape \([23], [23]\)"):
            lanczos(operator, np.ones(3), 1)
    with pytest.raises(TypeError, match="operator must be one of linops, .* got ndarray"):
        lanczos(np.eye(3), np.ones(3), 1)


@pytest.mark.parametrize("mode", [IN_PYTHON, *SELDOM])
def test_vectors_of_another_size(mode):
    """The products of a multiple of the identity would not tell."""
    with pytest.raises(TypeError, match=r"Lanczos needs inputs .* got n = 4 and 6"):
        lanczos(Diagonal(2.0, 4), np.ones(6), 1)
    with pytest.raises(TypeError, match=r"StochasticLogdet needs inputs .* got n = 4 and 6"):
        stochastic_logdet(Diagonal(2.0, 4), 0.5, np.ones((1, 6)), 1)
    b = pt.dvector()
    function = pytensor.function([b], lanczos(Diagonal(2.0, 4), b, 1), mode=mode)
    assert function(np.ones(4))[0].shape == (4, 2)
    with pytest.raises((ValueError, TypeError)):
        function(np.ones(6))


def test_the_basis_stays_orthogonal():
    """Where the three-term recurrence alone loses it, as the leading Ritz values converge."""
    d, b = np.geomspace(1.0, 1e-8, 60), np.ones(60)
    Q, alpha, beta = lanczos(Dense(np.diag(d)), b, 40)
    Q, alpha, beta = pytensor.function([], [Q, alpha, beta], mode=IN_PYTHON)()
    assert_allclose(Q.T @ Q, np.eye(41), atol=1e-13)
    T = np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1)
    assert_allclose(Q[:, :-1].T @ (d[:, None] * Q[:, :-1]), T, atol=1e-14)


@pytest.mark.parametrize("mode", SELDOM)
def test_an_operator_of_one_vector_has_a_gradient(mode):
    d = pt.vector("d", shape=(N,))
    Q, alpha, beta = lanczos(Diagonal(d), B, 3)
    grad = pt.grad((Q**3).sum() + alpha.sum() + beta.sum(), d)
    found, expected = (pytensor.function([d], grad, mode=m)(X + 1.0) for m in (mode, IN_PYTHON))
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_operators_of_other_sizes_in_one_process():
    """What checks a length that the operator knows holds it, and is not that of another size."""
    for n in (5, 6):
        A, b = pytensor.shared(2.0 * np.eye(n), shape=(n, n)), pt.vector(shape=(n,))
        found = pytensor.function([b], lanczos(Dense(A), b, 2)[1], mode="NUMBA")(np.ones(n))
        assert_allclose(found[0], 2.0)
