"""Regressions and densities under stationary kernels, block by block: against those of given blocks."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from block_plans import dense_factor, dense_rows, local, plan
from numpy.testing import assert_allclose
from scipy import stats

from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops._stationary import KINDS, SHAPED
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.stationary_blocks import stationary_blocks
from pymc_scalable_gp.ops.stationary_factor import StationaryFactor, stationary_factor
from pymc_scalable_gp.ops.stationary_logp import StationaryLogp, stationary_logp
from pymc_scalable_gp.ops.vecchia_color import vecchia_color
from pymc_scalable_gp.ops.vecchia_factor import vecchia_factor
from pymc_scalable_gp.ops.vecchia_whiten import vecchia_whiten
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON


def kernel_of(kind, squares, shape, library):
    if kind == "ExpQuad":
        return library.exp(-0.5 * squares)
    if kind == "RatQuad":
        return (1.0 + 0.5 * squares / shape) ** (-shape)
    root = library.sqrt(squares)
    if kind == "Arc":
        return library.exp(-2.0 * shape * library.arcsin(0.5 * root))
    if kind in ("Matern12", "Exponential"):
        return library.exp(-root * (1.0 if kind == "Matern12" else 0.5))
    if kind == "Matern32":
        return (1.0 + 3**0.5 * root) * library.exp(-(3**0.5) * root)
    return (1.0 + 5**0.5 * root + 5.0 / 3.0 * squares) * library.exp(-(5**0.5) * root)


# The kernels whose compiled forms are compared: Numba's of the others differ in one formula.
FEW = (*SHAPED, "Matern52")
BY_KIND = [(kind, (BY_OPS,) if kind in FEW else ()) for kind in KINDS]
TOO = [pytest.param(kind, ("NUMBA",), marks=pytest.mark.slow) for kind in KINDS]


@pytest.mark.parametrize(("kind", "modes"), BY_KIND + TOO)
def test_stationary_factor_is_the_factor_of_its_blocks(kind, modes):
    """The twin's kernel: no distance is 0 but on the diagonal, where the root has no slope."""
    n, g, k, first = 10, 3, 4, 1
    rng = np.random.default_rng(5)
    neighbors = plan(n, g, k, first)
    X, phi = rng.standard_normal((n, 2)) + 1e3, 0.1 * rng.standard_normal((n, 2))
    noise, scale = 0.3 + 0.1 * rng.uniform(size=n), np.array([0.7, 1.6])
    scale = 0.3 * scale if kind == "Arc" else scale  # no distance is above 2 there
    own = first + np.arange(3)[:, None] * g + np.arange(g)
    places = np.minimum(np.maximum(np.concatenate([neighbors, own], axis=1), 0), n - 1)
    local = X[places]
    parts = (local[:, :, None] - local[:, None]) ** 2
    off = np.where(parts.sum(axis=3) > 0, 0.0, 1.0)  # on the diagonal, and between padding

    def build(scale, variance, shape, phi, noise):
        return stationary_factor(kind, X, scale, variance, shape, phi, noise, neighbors, first, g)

    def twin(scale, variance, shape, phi, noise):
        squares = (parts * scale**2).sum(axis=3) + off
        K = variance * pt.switch(off, 1.0, kernel_of(kind, squares, shape, pt))
        return vecchia_factor(pt.specify_shape(K, places.shape + places.shape[1:]), phi, noise,
                              neighbors, first)  # fmt: skip

    def reference(scale, variance, shape, phi, noise):
        squares = (((X[:, None] - X) * scale) ** 2).sum(axis=2)
        K = variance * kernel_of(kind, squares, shape, np) + np.diag(noise) - phi @ phi.T
        return dense_factor(K, neighbors, g, first)

    case = (scale, np.array(1.3), np.array(2.2), phi, noise)
    check_op(
        StationaryFactor, build, reference, [case], twin=twin, jax_cases=kind in FEW,
        modes=modes,
    )  # fmt: skip


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS, pytest.param("JAX", marks=pytest.mark.slow)])
def test_a_sum_of_products_is_that_of_its_factors(mode):
    """Factors share inputs or have their own; one product has three; rows have factors. All gradients."""
    n, g, k = 10, 3, 4
    rng = np.random.default_rng(9)
    neighbors = plan(n, g, k)
    summands = ("Matern52", "RatQuad", "ExpQuad"), ("Matern32",), ("RatQuad", "Matern52")
    X, phi, noise = rng.standard_normal((n, 3)), 0.1 * rng.standard_normal((n, 2)), np.full(n, 0.4)
    used = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1], [1, 1, 0], [0, 0, 1], [0, 1, 0]])
    own = np.arange(4)[:, None] * g + np.arange(g)
    places = np.concatenate([neighbors, np.minimum(own, n - 1)], axis=1).clip(0)
    rate, variance, shape, rows = pt.dmatrix(), pt.dvector(), pt.dvector(), pt.dmatrix()
    inputs, point = [rate, variance, shape, rows], [
        rng.uniform(0.3, 1.5, (6, 3)), np.array([0.8, 0.5, 0.3]), np.array([1.0, 1.7, 1, 1, 0.6, 1]),
        rng.uniform(0.7, 1.2, (6, n)),
    ]  # fmt: skip

    def blocks():
        local = X[places]
        parts = (local[:, :, None] - local[:, None]) ** 2
        off = np.where(parts.sum(axis=3) > 0, 0.0, 1.0)
        total, t = 0.0, 0
        for q, kinds in enumerate(summands):
            product = variance[q]
            for kind in kinds:
                squares = (parts * (used * rate)[t] ** 2).sum(axis=3) + off
                own = rows[t][places]
                product = product * pt.switch(off, 1.0, kernel_of(kind, squares, shape[t], pt))
                product = product * own[:, :, None] * own[:, None]
                t += 1
            total = total + product
        return pt.specify_shape(total, places.shape + places.shape[1:])

    factor = vecchia_factor(blocks(), phi, noise, neighbors)
    parameters = used * rate, variance, shape
    own_factor = stationary_factor(summands, X, *parameters, phi, noise, neighbors, 0, g, rows=rows)
    e = np.arange(n) / n
    white = [vecchia_whiten(x, *factor, neighbors) for x in (phi, e[:, None])]
    half = pt.log(pt.diagonal(factor[1], axis1=1, axis2=2)).sum()
    logp = lowrank_logp(white[0], 1.0, white[1][:, 0]).logp - half
    own_logp = stationary_logp(summands, X, *parameters, phi, noise, e, neighbors, g, rows=rows)
    weights = [rng.standard_normal((4, g, k)), np.tril(rng.standard_normal((4, g, g)))]
    found = []
    for (A, L), density, back_end in ((factor, logp, IN_PYTHON), (own_factor, own_logp, mode)):
        both = (A * weights[0]).sum() + (L * weights[1]).sum()
        outputs = [A, L, density, *pt.grad(both, inputs), *pt.grad(density, inputs)]
        found.append(pytensor.function(inputs, outputs, mode=back_end)(*point))
    for a, b in zip(*found, strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_refuses_unknown_kinds():
    rest = np.zeros((2, 0)), np.ones(2), np.zeros((2, 0), dtype=int), 0, 1
    with pytest.raises(ValueError, match="kind must be one of .*, got 'Cosine'"):
        stationary_factor((("ExpQuad", "Cosine"),), np.ones((2, 1)), *np.ones((3, 2)), *rest)


@pytest.mark.parametrize(
    ("kind", "n", "g", "k", "r", "modes"),
    [
        ("RatQuad", 11, 3, 4, 2, (BY_OPS,)),
        pytest.param("RatQuad", 11, 3, 4, 2, ("NUMBA",), marks=pytest.mark.slow),
        pytest.param("ExpQuad", 7, 1, 3, 0, (), marks=pytest.mark.slow), ("Matern52", 6, 6, 0, 1, ()),
        pytest.param("Matern32", 5, 2, 0, 1, (), marks=pytest.mark.slow), ("Matern52", 9, 4, 6, 12, ()),
    ],
)  # fmt: skip
def test_stationary_logp_is_that_of_whitened_columns(kind, n, g, k, r, modes):
    rng = np.random.default_rng(6)
    neighbors = plan(n, g, k)
    X, phi, e = rng.standard_normal((n, 2)), 0.1 * rng.standard_normal((n, r)), np.arange(n) / n
    noise, scale = 0.8 + 0.1 * rng.uniform(size=n), np.array([0.7, 1.6])

    def build(scale, variance, shape, phi, noise, e):
        parameters = (pt.as_tensor(x)[None] for x in (scale, variance, shape))
        return StationaryLogp(((kind,),), g)(X, *parameters, np.zeros((0, n)), phi, noise, e, neighbors)[:3]

    def twin(scale, variance, shape, phi, noise, e):
        factor = stationary_factor(kind, X, scale, variance, shape, phi, noise, neighbors, 0, g)
        white = [vecchia_whiten(x, *factor, neighbors) for x in (phi, e[:, None])]
        half = pt.log(pt.diagonal(factor[1], axis1=1, axis2=2)).sum()
        return lowrank_logp(white[0], 1.0, white[1][:, 0]).logp - half

    def reference(scale, variance, shape, phi, noise, e):
        squares = (((X[:, None] - X) * scale) ** 2).sum(axis=2)
        K = variance * kernel_of(kind, squares, shape, np) + np.diag(noise) - phi @ phi.T
        whiten = dense_rows(*dense_factor(K, neighbors, g), neighbors, n)
        S = np.linalg.inv(whiten.T @ whiten)
        cov = np.linalg.inv(np.eye(r) + phi.T @ np.linalg.solve(S, phi))
        logp = stats.multivariate_normal(cov=S + phi @ phi.T).logpdf(e)
        return (
            logp,
            cov @ phi.T @ np.linalg.solve(S, e),
            np.linalg.inv(np.linalg.cholesky(np.linalg.inv(cov))),
        )

    case = (scale, np.array(1.3), np.array(2.2), phi, noise, e)
    check_op(
        StationaryLogp, build, reference, [case], twin=twin, differentiable=(0,),
        jax_cases=kind == "RatQuad", modes=modes,
    )  # fmt: skip


BACK_ENDS = pytest.param("Matern52", ("NUMBA", "JAX"), marks=pytest.mark.slow)
SHAPE_TOO = pytest.param("RatQuad", (IN_PYTHON, "NUMBA", "JAX"), marks=pytest.mark.slow)


@pytest.mark.parametrize(("kind", "modes"), [("Matern52", (IN_PYTHON,)), BACK_ENDS, SHAPE_TOO])
def test_gradient_in_moving_inputs(kind, modes):
    """Of the factor and of the density, a neighbour of many blocks among them."""
    n, g, k = 10, 3, 4
    rng = np.random.default_rng(8)
    neighbors = plan(n, g, k)
    phi, noise, e = 0.1 * rng.standard_normal((n, 2)), 0.5 + rng.uniform(size=n), np.arange(n) / n
    own = np.arange(4)[:, None] * g + np.arange(g)
    places = np.concatenate([neighbors, np.where(own < n, own, -1)], axis=1)
    used = (places >= 0)[:, :, None] & (places >= 0)[:, None]
    off = 1.0 - np.eye(k + g) * np.ones((4, 1, 1))
    off[~used] = 0.0

    def factor_twin(X, scale):
        local = X[np.maximum(places, 0)]
        squares = (((local[:, :, None] - local[:, None]) * scale) ** 2).sum(axis=3)
        squares = pt.switch(off, squares, 1.0)
        K = 1.3 * pt.switch(off, kernel_of(kind, squares, 2.2, pt), 1.0)
        shape = (4, k + g, k + g)
        return vecchia_factor(pt.specify_shape(K, shape), phi, noise, neighbors, 0)

    def factor_build(X, scale):
        return stationary_factor(kind, X, scale, 1.3, 2.2, phi, noise, neighbors, 0, g, moving=True)

    def logp_twin(X, scale):
        found = factor_twin(X, scale)
        white = [vecchia_whiten(x, *found, neighbors) for x in (phi, e[:, None])]
        half = pt.log(pt.diagonal(found[1], axis1=1, axis2=2)).sum()
        return lowrank_logp(white[0], 1.0, white[1][:, 0]).logp - half

    def logp_build(X, scale):
        return stationary_logp(kind, X, scale, 1.3, 2.2, phi, noise, e, neighbors, g, moving=True)

    X, scale = pt.dmatrix("X"), pt.dvector("scale")
    weights = [rng.standard_normal((4, g, k)), np.tril(rng.standard_normal((4, g, g)))]
    point = rng.standard_normal((n, 2)), np.array([0.7, 1.6])
    for build, twin, parts in ((factor_build, factor_twin, weights), (logp_build, logp_twin, [1.0])):
        found = []
        for make, mode in ((twin, IN_PYTHON), *((build, mode) for mode in modes)):
            made = make(X, scale)
            made = made if isinstance(made, list | tuple) else [made]
            total = sum((a * w).sum() for a, w in zip(made, parts, strict=True))
            outputs = [total, *pt.grad(total, [X, scale])]
            found.append(pytensor.function([X, scale], outputs, mode=mode)(*point))
        for other in found[1:]:
            for a, b in zip(other, found[0], strict=True):
                assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS])
def test_one_factor_that_is_scaled_by_rows(mode):
    """Whole numbers far from zero lose no digits; the slopes in the rows' factors are by hand."""
    n, g, k = 6, 2, 2
    rng = np.random.default_rng(9)
    x, neighbors = rng.permutation(n).astype(float)[:, None], plan(n, g, k)
    X, factors = pt.dmatrix("X"), pt.dvector("factors")
    parameters = np.array([[0.4]]), np.array([1.3]), np.array([1.0])
    blocks = stationary_blocks(
        (("Matern12",),), X, *parameters, np.zeros((n, 0)), neighbors, g, rows=factors[None]
    )
    out = blocks[2]
    weights = rng.standard_normal((k + g, k + g))
    function = pytensor.function([X, factors], [out, pt.grad((out * weights).sum(), factors)], mode=mode)
    s, rows = rng.uniform(0.5, 2.0, n), np.concatenate(local(neighbors, 2, n, g))
    K = 1.3 * np.exp(-0.4 * np.abs(x - x.T))[np.ix_(rows, rows)]
    for zeros, offset in (([], 0.0), ([], 1e9), (rows[:1], 0.0), (rows[1:3], 0.0)):
        s[zeros] = 0.0  # nothing to divide by
        found, grad = function(x + offset, s)
        slope = np.zeros(n)
        slope[rows] = (weights + weights.T) * K @ s[rows]
        # Beside a zero the next to nothing that stands for it.
        assert_allclose(found, K * np.outer(s[rows], s[rows]), rtol=1e-12, atol=1e-190)
        assert_allclose(grad, slope, rtol=1e-12, atol=1e-190)


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS])
def test_a_row_without_variance_tells_others_nothing(mode):
    """Without noise there is no regression on it: what stands for its factor must not make one."""
    X, rows = np.arange(3.0)[:, None], pt.dmatrix("rows")
    given = X, np.ones((1, 1)), np.ones(1), np.ones(1), np.zeros((3, 0))
    neighbors, run = np.array([[-1], [0], [1]]), []
    for noise in (0.0, 0.5):
        factor = stationary_factor((("Matern12",),), *given, np.full(3, noise), neighbors, 0, 1, rows=rows)
        outputs = [*factor, pt.grad(factor[0].sum(), rows)]
        run.append(pytensor.function([rows], outputs, mode=mode)(np.array([[0.0, 1.0, 1.0]])))
    (A, L, _), (noisy, _, grad) = run
    assert np.isnan(np.stack([A[:2], L[:2]])).all()
    assert_allclose(A[2], np.exp(-1.0), rtol=1e-14)
    # A_1 = s_0 s_1 / e / (s_0^2 + 1/2), A_2 = s_1 s_2 / e / (s_1^2 + 1/2)
    assert_allclose(noisy.ravel(), [0.0, 0.0, np.exp(-1.0) / 1.5], rtol=1e-14, atol=1e-190)
    assert_allclose(grad[0], np.array([2.0, 1 / 1.5 - 2 / 1.5**2, 1 / 1.5]) / np.e, rtol=1e-13)


def test_rows_that_are_no_integers_are_refused():
    """A float was cut to one: 0.9 to the first row."""
    X, none, one, places = np.ones((2, 1)), np.ones((2, 0)), np.ones(1), np.array([[-1], [0]])
    A, L, rows = np.ones((2, 1, 1)), np.ones((2, 1, 1)), np.array([[-1.0], [0.9]])

    def stationary(neighbors, first=0):
        return stationary_factor("ExpQuad", X, one, 1.0, 1.0, none, np.ones(2), neighbors, first, 1)

    def given(neighbors, first=0):
        return vecchia_factor(np.ones((2, 2, 2)), none, np.ones(2), neighbors, first)

    columns = [lambda rows, op=op: op(X, A, L, rows) for op in (vecchia_whiten, vecchia_color)]
    for build in (stationary, given, *columns):
        build(places)
        build(places.astype("int8"))
        with pytest.raises(TypeError, match="neighbors must hold integers, got float64"):
            build(rows)
    for build in stationary, given:
        with pytest.raises(TypeError, match="first must hold integers, got float"):
            build(places, 1.5)
