"""What features miss of a kernel in blocks, and the density of several residuals from it."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from block_plans import plan
from marks import in_back_ends
from numpy.testing import assert_allclose
from scipy import stats

from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops.block_logp import BlockLogp, BlockLogpGrad, block_logp
from pymc_scalable_gp.ops.stationary_blocks import StationaryBlocks, stationary_blocks
from pymc_scalable_gp.ops.stationary_logp import stationary_logp
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON

N, G, K, R = 11, 3, 4, 2
RNG = np.random.default_rng(6)
X, PHI = RNG.standard_normal((N, 2)), 0.1 * RNG.standard_normal((N, R))
NOISE, SCALE = 0.8 + 0.1 * RNG.uniform(size=N), np.array([0.7, 1.6])
NEIGHBORS = plan(N, G, K)
RESIDUALS = RNG.standard_normal((3, N))


def local_places():
    """Local rows (b, s), and which pairs of them are there."""
    own = np.arange(len(NEIGHBORS))[:, None] * G + np.arange(G)
    places = np.concatenate([NEIGHBORS, np.where(own < N, own, -1)], axis=1)
    there = places >= 0
    return np.maximum(places, 0), there[:, :, None] & there[:, None]


@in_back_ends
@pytest.mark.parametrize("moving", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_blocks_are_what_features_miss(moving, modes):
    """Two summands, one of them a product, with factors of the rows; nothing where there are no rows."""
    places, there = local_places()
    summands = ("Matern52", "ExpQuad"), ("RatQuad",)
    given = (np.stack([SCALE, [0.5, 0.0], [0.0, 1.2]]), np.array([1.3, 0.4]), np.array([1.0, 1.0, 2.2]))
    rows = RNG.uniform(0.7, 1.2, (3, N))

    def kernel(X, scale, variance, shape, rows, library):
        local = X[places]
        parts = [(((local[:, :, None] - local[:, None]) * scale[t]) ** 2).sum(axis=3) for t in range(3)]
        own = [rows[t][places][:, :, None] * rows[t][places][:, None] for t in range(3)]
        root = library.sqrt(5.0 * parts[0] + 1e-300)
        first = own[0] * (1.0 + root + root**2 / 3.0) * library.exp(-root)
        second = own[1] * library.exp(-0.5 * parts[1])
        third = own[2] * (1.0 + 0.5 * parts[2] / shape[2]) ** (-shape[2])
        return variance[0] * first * second + variance[1] * third

    def build(*inputs):
        first, (scale, variance, shape, phi, rows) = (inputs[0] if moving else X), inputs[-5:]
        return stationary_blocks(summands, first, scale, variance, shape, phi, NEIGHBORS, G, moving, rows)

    def values(library, *inputs):
        first, (scale, variance, shape, phi, rows) = (inputs[0] if moving else X), inputs[-5:]
        K = kernel(first, scale, variance, shape, rows, library)
        return (K - phi[places] @ phi[places].swapaxes(1, 2)) * there

    check_op(
        StationaryBlocks, build, lambda *inputs: values(np, *inputs),
        [(X, *given, PHI, rows) if moving else (*given, PHI, rows)],
        twin=None if moving else lambda *inputs: values(pt, *inputs), modes=modes,
    )  # fmt: skip


def density(scale, variance, shape, phi, noise, residuals):
    blocks = stationary_blocks("RatQuad", X, scale, variance, shape, phi, NEIGHBORS, G)
    return block_logp(blocks, phi, noise, residuals, NEIGHBORS, G)


def one_by_one(scale, variance, shape, phi, noise, residuals):
    given = "RatQuad", X, scale, variance, shape, phi, noise
    return pt.stack([stationary_logp(*given, residuals[c], NEIGHBORS, G) for c in range(3)])


@pytest.mark.parametrize(
    ("rank", "modes"),
    [(R, (BY_OPS,)), pytest.param(R, ("NUMBA",), marks=pytest.mark.slow), (0, ()), (12, ())],
)
def test_densities_are_those_of_single_residuals(rank, modes):
    """Also with more features than rows, and with none."""
    phi = 0.1 * np.random.default_rng(rank).standard_normal((N, rank))
    case = SCALE, np.array(1.3), np.array(2.2), phi, NOISE, RESIDUALS
    places = [pt.tensor(dtype="float64", shape=(None,) * x.ndim) for x in case]
    single = pytensor.function(places, one_by_one(*places), mode=IN_PYTHON)
    check_op(
        BlockLogp, density, single, [case], twin=one_by_one, modes=modes,
        jax_cases=rank == R,
    )  # fmt: skip


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS])
def test_gradient_of_a_difference(mode):
    """Its cotangents sum to exactly 0, and what the log determinants have is left out."""
    point = [SCALE, 1.3, 2.2, PHI, NOISE, RESIDUALS]
    places = [pt.as_tensor(x).type() for x in point]
    found = []
    for build, back_end in ((one_by_one, IN_PYTHON), (density, mode)):
        logp = build(*places)
        difference = 0.5 * (logp[0] - logp[2])
        outputs = [difference, *pt.grad(difference, places)]
        found.append(pytensor.function(places, outputs, mode=back_end)(*point))
    for a, b in zip(*found, strict=True):
        assert_allclose(b, a, rtol=1e-9, atol=1e-12)


def test_residuals_with_nearly_collinear_features():
    """The coefficients of each by a QR factor of the whitened features.

    Features of 26 binary digits have squares that add up exactly: the residual variance, a ten-millionth of
    the prior's, does not depend on the order in which a processor adds.
    """
    rng = np.random.default_rng(8)
    n, base = 60, rng.standard_normal((60, 1))
    phi = np.concatenate([base, base + 1e-6 * rng.standard_normal((n, 1))], axis=1)
    phi *= np.sqrt((1.0 - 1e-7) / (phi**2).sum(axis=1, keepdims=True))
    phi = np.round(phi * 2.0**26) / 2.0**26
    X, none = np.arange(n)[:, None] * 10.0, np.zeros((n, 0), dtype=int)
    residuals = np.stack([base[:, 0] + 1e-6 * rng.standard_normal(n), rng.standard_normal(n)])
    given = [pt.dmatrix(), pt.dmatrix()]
    blocks = stationary_blocks("ExpQuad", X, np.ones(1), 1.0, 1.0, given[0], none, 1)
    found = BlockLogp(1)(blocks, given[0], np.full(n, 1e-10), given[1], none)[:2]
    fast, slow = (
        pytensor.function(given, found, mode=mode)(phi, residuals) for mode in ("NUMBA", IN_PYTHON)
    )
    assert np.isfinite(slow[0]).all()
    assert_allclose(fast[0], slow[0], rtol=1e-12)  # by the Gram matrix fewer digits
    assert_allclose(fast[1], slow[1], rtol=1e-9)


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS])
def test_fails_with_nan(mode):
    """A covariance that is not positive definite, and a residual that is not finite."""
    given = [pt.dvector(), pt.dmatrix()]
    function = pytensor.function(given, density(SCALE, 1.3, 2.2, PHI, *given), mode=mode)
    assert np.isfinite(function(NOISE, RESIDUALS)).all()
    assert np.isnan(function(-2.0 * NOISE, RESIDUALS)).all()
    assert np.isnan(function(NOISE, RESIDUALS * [[1.0], [np.inf], [1.0]])).any()


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS])
def test_no_rows_and_one(mode):
    given = [pt.dmatrix(), pt.dmatrix(), pt.dvector(), pt.dmatrix(), pt.lmatrix()]
    inputs, phi, noise, residuals, neighbors = given
    blocks = stationary_blocks("RatQuad", inputs, SCALE, 1.3, 2.2, phi, neighbors, G)
    logp = block_logp(blocks, phi, noise, residuals, neighbors, G)
    outputs = [logp, *pt.grad(logp.sum(), [phi, noise, residuals])]
    function = pytensor.function(given, outputs, mode=mode)
    none = np.full((1, K), -1)
    logp, *grads = function(X[:0], PHI[:0], NOISE[:0], RESIDUALS[:, :0], none[:0])
    assert_allclose(logp, 0.0)
    assert [each.shape for each in grads] == [(0, R), (0,), (3, 0)]
    logp, *grads = function(X[:1], PHI[:1], NOISE[:1], RESIDUALS[:, :1], none)
    scale = np.sqrt(1.3 + NOISE[0])
    assert_allclose(logp, stats.norm(scale=scale).logpdf(RESIDUALS[:, 0]), rtol=1e-12)
    assert_allclose(grads[0], 0.0, atol=1e-12)  # features take off what they add
    assert_allclose(grads[2], -RESIDUALS[:, :1] / scale**2, rtol=1e-12)


def test_only_densities_have_gradients():
    blocks = stationary_blocks("RatQuad", X, SCALE, 1.3, 2.2, PHI, NEIGHBORS, G)
    phi = pt.constant(PHI)
    coef = BlockLogp(G)(blocks, phi, NOISE, RESIDUALS, NEIGHBORS)[1]
    with pytest.raises(ValueError, match="only the first output of BlockLogp"):
        pt.grad(coef.sum(), phi)


def test_sizes_known_before_compilation():
    """Local rows are the neighbours and the block."""
    blocks = stationary_blocks("RatQuad", X, SCALE, 1.3, 2.2, PHI, NEIGHBORS, G)
    assert blocks.type.shape == (len(NEIGHBORS), K + G, K + G)
    logp = block_logp(blocks, PHI, NOISE, RESIDUALS, NEIGHBORS, G)
    assert logp.type.shape == (3,)
    grad = pt.grad(logp.sum(), blocks)
    assert isinstance(grad.owner.op, BlockLogpGrad)
    assert grad.type.shape == blocks.type.shape
