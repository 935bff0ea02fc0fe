"""Structured operators against their dense matrices: products, transposes, diagonals, gradients."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import toeplitz

from pymc_scalable_gp import linops
from pymc_scalable_gp.linops.base import Diagonal, Scaled
from pymc_scalable_gp.linops.structured import Dense, Kronecker, LowRank, Masked, Toeplitz

RNG = np.random.default_rng(0)
A, B, C = (RNG.standard_normal(s) for s in ((3, 3), (4, 2), (2, 5)))
COLUMN, FACTOR = RNG.standard_normal(4), RNG.standard_normal((6, 2))
D = RNG.standard_normal(6)
PLACES = np.array([0, 2, 3, 7, 11])


def kron(*matrices):
    out = np.eye(1)
    for matrix in matrices:
        out = np.kron(out, matrix)
    return out


# name: (operator of the parameters, dense matrix of the same, parameters)
CASES = {
    "dense": (Dense, lambda a: a, [A]),
    "rectangular": (Dense, lambda a: a, [B]),
    "low rank": (LowRank, lambda f: f @ f.T, [FACTOR]),
    "toeplitz": (Toeplitz, toeplitz, [COLUMN]),
    "diagonal": (Diagonal, np.diag, [D]),
    "scalar diagonal": (lambda d: Diagonal(d, 3), lambda d: d * np.eye(3), [np.array(2.5)]),
    "one factor": (lambda a: Kronecker([a]), lambda a: a, [A]),
    "two factors": (lambda a, c: Kronecker([a, Toeplitz(c)]), lambda a, c: kron(a, toeplitz(c)),
                    [A, COLUMN]),
    "rectangular factors": (lambda b, a, c: Kronecker([b, a, c]), kron, [B, A, C]),
    "four factors": (lambda *f: Kronecker([Toeplitz(f[0]), *f[1:]]),
                     lambda c, *f: kron(toeplitz(c), *f), [COLUMN, A, A[:2, :2], A]),
    "masked": (lambda a, c: Masked(Kronecker([a, Toeplitz(c)]), PLACES),
               lambda a, c: kron(a, toeplitz(c))[np.ix_(PLACES, PLACES)], [A, COLUMN]),
    "masked rectangle": (lambda a, c: Masked(Kronecker([a, Toeplitz(c)]), PLACES, PLACES[:2]),
                         lambda a, c: kron(a, toeplitz(c))[np.ix_(PLACES, PLACES[:2])], [A, COLUMN]),
    "repeated places": (lambda a: Masked(Dense(a), np.array([1, 1, 0])),
                        lambda a: a[np.ix_([1, 1, 0], [1, 1, 0])], [A]),
    "no places": (lambda a: Masked(Dense(a), np.zeros(0, dtype=int)), lambda a: np.zeros((0, 0)), [A]),
    "sum and scale": (lambda s, f, d: (s * LowRank(f)).add_diagonal(d) + Diagonal(d),
                      lambda s, f, d: s * f @ f.T + 2 * np.diag(d), [np.array(1.7), FACTOR, D]),
}  # fmt: skip


def symbolic(parameters):
    return [pt.tensor(dtype="float64", shape=p.shape) for p in parameters]


COMPILED = ("sum and scale", "toeplitz", "masked", "four factors")  # every graph


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, "FAST_COMPILE") for name in CASES]
    + [pytest.param(name, "NUMBA", marks=pytest.mark.slow) for name in COMPILED],
)
def test_products_and_gradients(name, mode):
    build, dense, parameters = CASES[name]
    tensors = symbolic(parameters)
    operator, matrix = build(*tensors), dense(*parameters)
    assert operator.shape == matrix.shape
    V, W = (RNG.standard_normal((s, 3)) for s in matrix.shape[::-1])
    v = pt.matrix(dtype="float64", shape=(matrix.shape[1], None))
    product = operator @ v
    grads = pt.grad((product * W).sum(), [*tensors, v])
    run = pytensor.function(
        [*tensors, v], [product, operator @ v[:, 0], operator.T @ pt.constant(W), *grads],
        mode=mode, on_unused_input="ignore",
    )  # fmt: skip
    found, vector, transposed, *grads = run(*parameters, V)
    assert_allclose(found, matrix @ V, atol=1e-12)
    assert_allclose(vector, matrix @ V[:, 0], atol=1e-12)
    assert_allclose(transposed, matrix.T @ W, atol=1e-12)
    assert_allclose(grads[-1], matrix.T @ W, atol=1e-12)
    for k, grad in enumerate(grads[:-1]):
        direction, sides = RNG.standard_normal(parameters[k].shape), []
        for step in (1e-6, -1e-6):
            moved = [p + step * direction if i == k else p for i, p in enumerate(parameters)]
            sides.append(((dense(*moved) @ V) * W).sum())
        assert_allclose((grad * direction).sum(), (sides[0] - sides[1]) / 2e-6, atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_diagonals(name):
    build, dense, parameters = CASES[name]
    matrix = dense(*parameters)
    if name == "masked rectangle":
        with pytest.raises(ValueError, match="equal rows and columns"):
            build(*map(pt.constant, parameters)).diag()
    elif matrix.shape[0] == matrix.shape[1]:
        operator = build(*map(pt.constant, parameters))
        assert_allclose(operator.diag().eval(mode="FAST_COMPILE"), np.diag(matrix), atol=1e-13)
        assert_allclose(operator.to_dense().eval(mode="FAST_COMPILE"), matrix, atol=1e-12)


def test_jax():
    pytest.importorskip("jax")
    build, _, parameters = CASES["masked"]
    tensors = symbolic(parameters)
    V = RNG.standard_normal((len(PLACES), 2))
    product = build(*tensors) @ pt.constant(V)
    grads = pt.grad((product**2).sum(), tensors)
    by_jax = pytensor.function(tensors, [product, *grads], mode="JAX")(*parameters)
    by_python = pytensor.function(tensors, [product, *grads], mode="FAST_COMPILE")(*parameters)
    for a, b in zip(by_jax, by_python, strict=True):
        assert_allclose(a, b, rtol=1e-10)


def test_bad_operators():
    with pytest.raises(ValueError, match="needs a matrix"):
        Dense(pt.constant(D))
    with pytest.raises(ValueError, match="needs a first column"):
        Toeplitz(pt.constant(A))
    with pytest.raises(ValueError, match="at least one factor"):
        Kronecker([])
    with pytest.raises(ValueError, match=r"cannot add operators of shapes \[\(3, 3\), \(4, 2\)\]"):
        Dense(A) + Dense(B)
    with pytest.raises(ValueError, match="diagonal is known for square factors"):
        Kronecker([Dense(np.ones((2, 3))), Dense(np.ones((3, 2)))]).diag()
    with pytest.raises(TypeError, match="integer places"):
        Masked(Dense(A), np.array([0.5]))
    with pytest.raises(ValueError, match=r"outside 0\.\.2"):
        Masked(Dense(A), np.array([3]))
    with pytest.raises(ValueError, match="static shape"):
        _ = Dense(pt.matrix()).shape
    assert linops.LinearOperator is Dense.__mro__[1]


WRONG = {
    "scale": (lambda: Scaled(D[:3], Dense(A)), ValueError, "needs a scalar, got 1 dimensions"),
    "diagonal": (lambda: Diagonal(np.ones(3), 5), ValueError, "3 values do not fit size 5"),
    "diagonal matrix": (lambda: Diagonal(A), ValueError, "needs a vector, .* got 2 dimensions"),
    "diagonal scalar": (lambda: Diagonal(0.5), ValueError, "needs a size"),
    "too many": (lambda: Diagonal(0.5, 3) @ np.ones(5), ValueError, r"\(3, 3\) .* got 5"),
    "a single one": (lambda: Diagonal(np.ones(3)) @ np.ones(1), ValueError, r"\(3, 3\) .* got 1"),
    "masked": (lambda: Masked(Dense(A), PLACES[:2]) @ np.ones(1), ValueError, r"\(2, 2\) .* got 1"),
    "kronecker": (lambda: Kronecker([A, A]) @ np.ones((3, 2)), ValueError, r"\(9, 9\) .* got 3"),
    "no vector": (lambda: Dense(A) @ np.ones((3, 1, 1)), TypeError, "a vector or a matrix, got 3"),
    "operators": (lambda: Dense(A) @ Dense(A), TypeError, "a vector or a matrix, got Dense"),
    "diagonal of": (lambda: Dense(B).diag(), ValueError, "square"),
    "factor": (lambda: LowRank(D), ValueError, "needs a factor .* got 1 dimensions"),
    "array": (lambda: Dense(A) + A, TypeError, "only operators can be added"),
    "array in front": (lambda: A + Dense(A), TypeError, "only operators can be added"),
    "array masked": (lambda: linops.Masked(A, [0]), TypeError, "Masked takes an operator, got ndarray"),
    "array scaled": (lambda: linops.Scaled(2.0, A), TypeError, "Scaled takes an operator, got ndarray"),
    "a size below 0": (lambda: linops.Diagonal(1.0, -1), ValueError, "size must be at least 0"),
    "a size with a point": (lambda: linops.Diagonal(1.0, 3.0), TypeError, "size must be"),
    "array times": (lambda: A * Dense(A), ValueError, "needs a scalar, got 2 dimensions"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sizes(name):
    build, error, match = WRONG[name]
    with pytest.raises(error, match=match):
        build()


def test_a_size_that_is_known_when_it_runs():
    v = pt.dvector()
    for operator in Diagonal(0.5, 3), Diagonal(np.ones(3)), Masked(Dense(A), np.array([0, 1, 1])):
        function = pytensor.function([v], operator @ v, mode="FAST_COMPILE")
        assert function(np.ones(3)).shape == (3,)
        for wrong in 1, 5:
            with pytest.raises((AssertionError, ValueError)):
                function(np.ones(wrong))
    matrix = pt.dmatrix()  # of any size
    product = Dense(matrix) @ v
    assert_allclose(product.eval({matrix: B, v: D[:2]}, mode="FAST_COMPILE"), B @ D[:2])


def test_scales_and_differences():
    operator = Dense(A)
    for found, expected in (
        (operator * 2.0, 2.0 * A),
        (np.float64(2.0) * operator, 2.0 * A),
        (pt.constant(2.0) * operator, 2.0 * A),
        (-operator, -A),
        (operator - 0.5 * operator, 0.5 * A),
    ):
        assert isinstance(found, linops.LinearOperator)
        assert_allclose(found.to_dense().eval(mode="FAST_COMPILE"), expected, atol=1e-15)


@pytest.mark.parametrize("make", [
    lambda: LowRank(np.array([[12]], dtype=np.int8)),
    lambda: 2.0 * Dense(np.array([[100]], dtype=np.uint8)),
    lambda: Kronecker([np.array([[100]], dtype=np.int8), np.array([[3]], dtype=np.int8)]),
])  # fmt: skip
def test_small_integers_do_not_wrap_around(make):
    operator = make()
    assert_allclose(operator.diag().eval(), np.diag(operator.to_dense().eval()))
