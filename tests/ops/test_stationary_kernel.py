"""Kernel matrices in one pass: values, gradients, second derivatives, equal points, memory."""

import tracemalloc
from decimal import Decimal, localcontext

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from marks import often
from numpy.testing import assert_allclose, assert_array_equal

from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.ops import stationary_kernel
from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops._stationary import KINDS, SHAPED
from pymc_scalable_gp.ops.square_distances import BY_PRODUCT
from pymc_scalable_gp.ops.stationary_kernel import StationaryKernel
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON

MANY = BY_PRODUCT + 6
RNG = np.random.default_rng(0)
SHAPES = [(7, 5, 3), (6, 3, MANY), (0, 3, 1), (3, 0, 2), (1, 1, 1), (258, 3, 2)]
CASES = [
    (RNG.standard_normal((n, d)), RNG.standard_normal((m, d)), RNG.uniform(2.0, 5.0, d), 1.3)
    for n, m, d in SHAPES
]
CASES = [tuple(np.asarray(x) for x in case) for case in CASES]


def formula(kind, squares, shape, xp):
    root = xp.sqrt(squares)
    return {
        "ExpQuad": lambda: xp.exp(-squares / 2),
        "Matern12": lambda: xp.exp(-root),
        "Exponential": lambda: xp.exp(-root / 2),
        "Matern32": lambda: (1 + np.sqrt(3) * root) * xp.exp(-np.sqrt(3) * root),
        "Matern52": lambda: (1 + np.sqrt(5) * root + 5 * squares / 3) * xp.exp(-np.sqrt(5) * root),
        "RatQuad": lambda: (1 + squares / (2 * shape)) ** (-shape),
        "Arc": lambda: xp.exp(-2 * shape * xp.arcsin(root / 2)),
    }[kind]()


def plain(kind, xp):
    return lambda X, Z, ls, shape=1.0: formula(kind, (((X[:, None] - Z) / ls) ** 2).sum(axis=-1), shape, xp)


@pytest.mark.parametrize("kind", often(KINDS, "Matern52", "RatQuad", "Arc"))
def test_op(kind):
    cases = CASES if kind in SHAPED else [case[:3] for case in CASES]
    if kind == "Arc":  # on the unit sphere no distance is above 2
        cases = [(X, Z, 8.0 * ls, shape) for X, Z, ls, shape in CASES]
    check_op(
        StationaryKernel, lambda *inputs: stationary_kernel(kind, *inputs),
        plain(kind, np), cases, twin=plain(kind, pt), rtol=1e-12, grad_rtol=1e-10,
        jax_cases={"Matern32": 3, "RatQuad": 2}.get(kind, 1),
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS[:6])
def test_kernels_of_pymc(kind):
    """Both sets of back-ends, up to the 1e-12 that PyMC adds before a root."""
    rng = np.random.default_rng(1)
    X, Z, ls = rng.standard_normal((9, 2)), rng.standard_normal((4, 2)), np.array([0.7, 1.9])
    more = {"alpha": 0.8} if kind == "RatQuad" else {}
    cov = getattr(pm.gp.cov, kind)(2, ls=ls, **more)
    for mode in (IN_PYTHON, "NUMBA"):
        found = pytensor.function([], kernel_matrix(cov, X, Z), mode=mode)()
        assert_allclose(found, cov(X, Z).eval(), rtol=1e-9)


@pytest.mark.parametrize("kind", ["ExpQuad", "Matern52", "RatQuad", "Arc"])
def test_second_derivatives(kind):
    X, Z, ls, shape = pt.dmatrix("X"), pt.dmatrix("Z"), pt.dvector("ls"), pt.dscalar("shape")
    inputs = [X, Z, ls] + [shape] * (kind in SHAPED)
    rng = np.random.default_rng(2)
    values = rng.standard_normal((4, 2)), rng.standard_normal((3, 2)), np.array([2.0, 3.2]), 1.4
    outer = rng.standard_normal((4, 3))
    along = [rng.standard_normal(np.shape(v)) for v in values[: len(inputs)]]

    def twice(K):
        first = pt.grad((K * outer).sum(), inputs)
        total = sum((g * a).sum() for g, a in zip(first, along, strict=True))
        grads = pt.grad(total, inputs)
        return pytensor.function([X, Z, ls, shape], grads, mode=IN_PYTHON, on_unused_input="ignore")

    found = twice(stationary_kernel(kind, X, Z, ls, shape))(*values)
    expected = twice(plain(kind, pt)(X, Z, ls, shape))(*values)
    for a, b in zip(found, expected, strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [*((kind, IN_PYTHON) for kind in KINDS), ("Matern12", BY_OPS)]
    + [pytest.param(kind, BY_OPS, marks=pytest.mark.slow) for kind in KINDS if kind != "Matern12"],
)
def test_equal_points(kind, mode):
    """One, symmetric, and a finite gradient that leaves them where they are."""
    X, ls, g = pt.dmatrix("X"), pt.dvector("ls"), pt.dmatrix("g")
    for d in (2, MANY):
        rng = np.random.default_rng(d)
        points = rng.standard_normal((300, d))
        points[7] = points[4]
        K = stationary_kernel(kind, X, ls=ls)
        grads = pt.grad((K * g).sum(), [X, ls])
        f = pytensor.function([X, ls, g], [K, *grads], mode=mode)
        value, gx, gs = f(points, np.full(d, 2.5), np.eye(300)[[*range(7), 4, *range(8, 300)]])
        assert_array_equal(value, value.T)
        assert_array_equal(np.diag(value), 1.0)
        assert value[7, 4] == 1.0
        # The cotangent is nothing but that of equal points.
        assert_array_equal(gx, 0.0)
        assert_array_equal(gs, 0.0)


@pytest.mark.parametrize("mode", [BY_OPS, IN_PYTHON])
def test_arcs_to_the_other_side_of_the_sphere(mode):
    """The angle is pi, and has no slope; beyond it, by rounding, nothing changes."""
    x = np.array([[-1.0, 0.0], [-1.0 - 1e-12, 0.0], [0.0, 1.0]])
    Z, shape = pt.dmatrix("Z"), pt.dscalar("shape")
    K = stationary_kernel("Arc", np.array([[1.0, 0.0]]), Z, shape=shape)
    function = pytensor.function([Z, shape], [K, *pt.grad(K.sum(), [Z, shape])], mode=mode)
    value, slope, change = function(x, 0.7)
    angle = np.pi * np.array([1.0, 1.0, 0.5])
    assert_allclose(value[0], np.exp(-0.7 * angle), rtol=1e-13)
    assert_allclose(change, -(angle * np.exp(-0.7 * angle)).sum(), rtol=1e-13)
    assert_array_equal(slope[:2], 0.0)
    assert np.isfinite(slope).all()


def test_memory_is_the_result_and_a_block():
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((20_000, 3)), rng.standard_normal((50, 3))
    op = StationaryKernel("Matern52")
    inputs = [np.asarray(x) for x in (X, Z, np.ones(3), 1.0)]
    node = op.make_node(*inputs)
    tracemalloc.start()
    op.perform(node, inputs, [[None]])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Distances, roots and masks of all rows would be five times as much.
    assert peak < 1.2 * 8 * 20_000 * 50


def test_refuses_other_kinds():
    with pytest.raises(ValueError, match="kind must be one of"):
        stationary_kernel("Cosine", np.zeros((3, 1)))


@pytest.mark.parametrize("alpha", [1e-2, 3.0, 1e3, 1e8, 1e12, 1e17])
@pytest.mark.parametrize("mode", [BY_OPS, IN_PYTHON])
def test_rational_quadratic_keeps_its_digits_for_every_alpha(alpha, mode):
    """Value and slope in alpha, against 60 digits: at a large alpha both are nearly those of an ExpQuad."""
    x = np.array([[0.3], [1.0], [2.5]])
    shape = pt.dscalar("shape")
    K = stationary_kernel("RatQuad", np.zeros((1, 1)), x, shape=shape)
    value, slope = pytensor.function([shape], [K, pt.grad(K[0, 1], shape)], mode=mode)(alpha)
    with localcontext(prec=60):
        a = Decimal(alpha)
        u = [Decimal(float(v)) ** 2 / (2 * a) for v in x[:, 0]]
        expected = [(-a * (1 + v).ln()).exp() for v in u]
        change = expected[1] * (u[1] / (1 + u[1]) - (1 + u[1]).ln())
    assert_allclose(value[0], np.array(expected, float), rtol=1e-13)
    assert_allclose(slope, float(change), rtol=1e-11)
