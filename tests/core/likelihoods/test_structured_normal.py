"""Observed variables of every kind of likelihood: one distribution, whatever the covariance."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from compared import draw_many
from marks import often
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.data.inputs import Data
from pymc_scalable_gp.core.likelihoods.exact import DenseNormal
from pymc_scalable_gp.core.likelihoods.lowrank import LowRank
from pymc_scalable_gp.utils.jitter import with_diagonal

RNG = np.random.default_rng(4)
N = 24
X = RNG.uniform(-1.0, 1.0, (N, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.5 + 0.1 * RNG.standard_normal(N)
OTHER = Y + RNG.standard_normal(N)
ROWS = RNG.uniform(0.05, 0.5, N)
FAST = {"mode": "FAST_COMPILE"}
COV = 2.0 * pm.gp.cov.ExpQuad(2, ls=0.7)
TASK = np.column_stack([X[:, 0], np.arange(N) % 2])

# Label of each kind, a GP, and whether one noise variance for each row may be handed in.
KINDS = {
    "full": ("LowRankNormal", lambda **k: sgp.GriefGP(grid=5, rank=12, **k), True),
    "summarized": (
        "SummarizedNormal", lambda **k: sgp.GriefGP(approx="DTC", grid=5, rank=12, **k), True,
    ),
    "rotated": (
        "SummarizedNormal", lambda **k: sgp.GriefGP(rotate=True, grid=5, rank=12, **k), True,
    ),
    "vecchia": (
        "VecchiaNormal",
        lambda **k: sgp.VecchiaMarginal(n_inducing=6, neighbors=5, block=4, **k), True,
    ),
    "exact": ("DenseNormal", lambda **k: sgp.ExactMarginal(**k), True),
    "products": (
        "ProductNormal",
        lambda **k: sgp.SKIPMarginal(grid_size=30, rank=6, n_iter=24, preconditioner=10, **k), True,
    ),
    "coordinates": ("KrylovNormal", lambda **k: sgp.KMCGMarginal(n_iter=12, probes=0, **k), False),
    "tasks": (
        "TaskNormal",
        lambda mean_func, cov_func: sgp.SKIPMarginal(
            mean_func=mean_func, cov_func=pm.gp.cov.ExpQuad(2, ls=0.7, active_dims=[0]),
            task_dim=1, task_cov=np.array([[1.0], [0.6]]), grid_size=30, rank=6,
        ),
        True,
    ),
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")


@pytest.fixture(scope="module", params=often(KINDS, *(set(KINDS) - {"summarized", "products"})))
def case(request):
    label, make, by_rows = KINDS[request.param]
    with pm.Model(coords={"row": range(N)}) as model:
        gp = make(mean_func=pm.gp.mean.Constant(0.5), cov_func=COV)
        inputs = TASK if request.param == "tasks" else X
        gp.marginal_likelihood("y", X=inputs, y=Y, sigma=0.3, dims="row")
    assert gp.likelihood_path == request.param
    return gp, model, label, by_rows


def evaluated(model, tensor):
    return model.compile_fn(tensor, inputs=[], point_fn=False, **FAST)()


def test_the_variable_is_that_of_the_likelihood(case):
    gp, model, label, _ = case
    assert model["y"].owner.op._print_name[0] == label
    assert str(model["y"].str_repr()).startswith(f"y ~ {label}")
    assert_allclose(model.compile_logp(**FAST)({}), evaluated(model, gp.training.logp()), rtol=1e-9)
    with pytest.raises(NotImplementedError, match=f"{label}'s logp takes one vector at a time"):
        pm.logp(gp.training.normal(pt.constant(0.09)).dist(size=2), np.zeros((2, N)))


def test_targets_and_noise_are_handed_in(case):
    """Noise of each row counts, and targets that are known at run time alone."""
    gp, model, _, by_rows = case
    known, target = gp.training, pt.vector("target", dtype="float64")
    noise = ROWS if by_rows else np.array(0.04)
    given = target, pt.constant(noise)
    outputs = [known.logp(*given), known.coefficients(*given).mean]
    found = model.compile_fn(outputs, inputs=[target], point_fn=False, **FAST)(OTHER)
    if known.path in ("products", "coordinates"):
        # What is frozen belongs to the first data: other data have another density, near this.
        assert np.isfinite([found[0], *found[1]]).all()
        return
    fresh = known.given(known.X, Data(pt.constant(OTHER), OTHER, False), pt.constant(noise**0.5))
    expected = evaluated(model, [fresh.logp(), fresh.coefficients().mean])
    assert_allclose(found[0], expected[0], rtol=1e-9)
    if known.path != "tasks":  # those of other features than the fresh one's
        assert_allclose(found[1], expected[1], rtol=1e-7, atol=1e-9)


def test_prepared_for_several_noises(case):
    """The same density, and the product of two vectors by the inverse covariance."""
    gp, model, _, by_rows = case
    if not by_rows:
        return
    normal = gp.training.normal(pt.constant(ROWS))
    prepared, target = normal.prepared().prepared(), pt.constant(OTHER)
    left, right = pt.constant(OTHER - Y), pt.constant(Y - 0.5)
    outputs = [normal.logp(target), prepared.logp(target), prepared.product(left, right)]
    outputs += [normal.logp(normal.mean + x) for x in (right - left, right + left)]
    plain, found, product, *ends = evaluated(model, outputs)
    assert_allclose(found, plain, rtol=1e-12)
    assert_allclose(product, 0.5 * (ends[0] - ends[1]), rtol=1e-9)
    try:
        both = normal.solve(pt.stack([left, right], axis=1))
        solved = evaluated(model, (left * both[:, 1]).sum())
    except NotImplementedError:
        return
    assert_allclose(product, solved, rtol=1e-8)


def test_draws_have_the_mean_and_the_size_that_is_asked_for(case):
    gp, model, _, _ = case
    normal = gp.training.normal(pt.constant(0.09))
    draws = draw_many(normal.dist(), 2000, 1)
    assert draws.shape == (2000, N)
    assert_allclose(draws.mean(axis=0), 0.5, atol=5 * draws.std() / np.sqrt(2000))
    assert pm.draw(normal.dist(size=(3, 2)), random_seed=1, **FAST).shape == (3, 2, N)
    found = pm.sample_prior_predictive(3, model=model, random_seed=1, compile_kwargs=FAST)
    assert found["prior_predictive"]["y"].dims == ("chain", "draw", "row")


def test_a_free_variable_starts_at_the_mean(case):
    gp, _, _, _ = case
    with pm.Model() as model:
        gp.training.normal(pt.constant(0.09)).variable("f")
        gp.training.normal(pt.constant(0.09)).variable("g", shape=(2, N))
    start = model.initial_point(0)
    assert_allclose(start["f"], 0.5 * np.ones(N))
    assert_allclose(start["g"], 0.5 * np.ones((2, N)))


def test_models_are_copied_and_sent_to_other_processes(case):
    _, model, _, _ = case
    expected = float(model.compile_logp(**FAST)({}))
    sent = cloudpickle.loads(cloudpickle.dumps(model))
    assert_allclose(float(sent.compile_logp(**FAST)({})), expected, rtol=1e-12)
    again = pm.do(model, {})
    assert_allclose(float(again.compile_logp(**FAST)({})), expected, rtol=1e-12)


@pytest.mark.parametrize("approx", ["DTC", "FITC", "VFE", "dense"])
def test_a_product_has_the_gradient_of_the_dense_one(approx):
    """`product` takes solutions for constants, whose changes cancel."""
    own = np.random.default_rng(4)
    phi, weights = own.standard_normal((7, 3)), own.uniform(0.5, 2.0, 3)
    prior = (phi**2) @ weights * own.choice([0.5, 3.0], 7)  # FITC's maximum takes both sides
    values = [phi, own.uniform(0.3, 1.0, 7), weights, *own.standard_normal((2, 7))]
    places = [pt.tensor(dtype="float64", shape=x.shape) for x in values]
    phi, noise, weights, left, right = places
    cov, kdiag = (phi * weights) @ phi.T, pt.constant(prior)
    if approx == "dense":
        normal = DenseNormal(pt.zeros(7), cov, noise)
    else:
        normal = LowRank(pt.zeros(7), phi, noise, weights, kdiag, approx)
    missing = pt.maximum(kdiag - pt.diag(cov), 0.0) * float(approx == "FITC")
    expected = left @ pt.linalg.solve(cov + pt.diag(noise + missing), right)
    found = normal.product(left, right)
    outputs = [each for value in (found, expected) for each in (value, *pt.grad(value, places))]
    outputs = pytensor.function(places, outputs, mode="FAST_COMPILE")(*values)
    for value, dense in zip(outputs[:6], outputs[6:], strict=True):
        assert_allclose(value, dense, rtol=1e-9, atol=1e-11)


def test_a_diagonal_is_added_in_machine_code_too():
    """By `pt.diag` that of the first matrix was replaced, as PyTensor wrote both diagonals in one loop."""
    v, K = pt.vector("v", shape=(3,)), pt.matrix("K", shape=(3, 3))
    first, second = with_diagonal(K, v**2), pt.linalg.cholesky(with_diagonal(5.0 * pt.eye(3), v**2))
    noise, A = np.array([1.0, 2.0, 3.0]), np.full((3, 3), 10.0)
    found = pytensor.function([v, K], [first, second], mode="NUMBA")(noise, A)
    assert_allclose(found[0], A + np.diag(noise**2))
    assert_allclose(found[1], np.diag(np.sqrt(5.0 + noise**2)))
