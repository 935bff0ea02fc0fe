"""Densities side by side: the same numbers as one after the other."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from time import sleep

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from marks import often
from pytensor.compile.builders import OpFromGraph

import pymc_scalable_gp as sgp
from pymc_scalable_gp.importance import run as run_module
from pymc_scalable_gp.importance.density import Density
from pymc_scalable_gp.importance.workers import _evaluate, side_by_side
from pymc_scalable_gp.utils.threads import one_blas_thread

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 6.0, (60, 2))
Y = np.sin(X).sum(axis=1) + 0.2 * RNG.standard_normal(60)
COUNTS = RNG.poisson(np.exp(0.5 * Y)).astype(float)


def poisson(f):
    return pm.Poisson.dist(mu=pm.math.exp(f))


def one_input(eta, ell):
    return eta**2 * pm.gp.cov.Matern32(1, ls=ell[0])


def squared(eta, ell):
    return eta**2 * pm.gp.cov.ExpQuad(2, ls=ell)


FEW = {"n_inducing": 8, "neighbors": 5}
MODELS = {
    "counts": (sgp.VecchiaMarginal, FEW, squared, X, {"likelihood": poisson}),
    "vecchia": (sgp.VecchiaMarginal, FEW, squared, X, {}),
    "exact": (sgp.ExactMarginal, {}, squared, X, {}),
    "exact counts": (sgp.ExactMarginal, {}, squared, X, {"likelihood": poisson}),
    "grief": (sgp.GriefGP, {"grid": 6, "rank": 12}, squared, X, {}),
    "skip": (sgp.SKIPMarginal, {"grid_size": 12, "rank": 10}, squared, X, {}),
    "softki": (sgp.SoftKIMarginal, {"inducing": X[:10]}, squared, X, {}),
    "cholqr": (sgp.CholQRMarginal, {"n_inducing": 10}, squared, X, {}),
    "series": (sgp.StateSpaceMarginal, {}, one_input, X[:, :1], {}),
}


def model_of(name):
    kind, options, kernel, inputs, noise = MODELS[name]
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 0.0, 0.5, shape=2)
        eta, sigma = pm.HalfNormal("eta", 2.0), pm.HalfNormal("sigma", 1.0)
        gp = kind(cov_func=kernel(eta, ell), **options)
        noise, y = (noise, COUNTS) if noise else ({"sigma": sigma}, Y)
        gp.marginal_likelihood("y", X=inputs, y=y, **noise)
    return model


@pytest.mark.filterwarnings("ignore")  # of what the approximations lack: they are rough here
@pytest.mark.parametrize("name", often(list(MODELS), "exact counts", "vecchia"))
def test_threads_find_what_one_finds(name):
    density = Density(model_of(name))
    points = density.initial + 0.3 * np.random.default_rng(1).standard_normal((24, density.size))
    with side_by_side(density.graphs, 1) as where:
        assert where is None
    with side_by_side(density.graphs, 3) as where, one_blas_thread():
        for kind in ("density", "gradient"):
            expected = density.graphs.rows(kind, points)
            assert np.isfinite(expected).all()
            for _ in range(3):
                np.testing.assert_array_equal(where(kind, points), expected)
        np.testing.assert_array_equal(
            where("density", points[:1]), density.graphs.rows("density", points[:1])
        )


def loop():
    with pm.Model() as model:
        rate = pm.HalfNormal("rate")
        steps = pytensor.scan(
            lambda last, rate: rate * last, outputs_info=[np.ones(())], non_sequences=[rate],
            n_steps=5, return_updates=False,
        )  # fmt: skip
        pm.Normal("y", steps, 1.0, observed=np.ones(5))
    return model


INSIDE = Lock()


class Own(pytensor.graph.Op):
    """An operation that this package does not know, and that runs in one thread at a time."""

    itypes = otypes = (pt.dscalar,)

    def perform(self, node, inputs, output_storage):
        if not INSIDE.acquire(blocking=False):
            raise RuntimeError("in two threads at once")
        sleep(1e-3)
        output_storage[0][0] = np.asarray(inputs[0] ** 2)
        INSIDE.release()


@pytensor.wrap_py([pt.dscalar], [pt.dscalar])
def wrapped(x):
    return np.asarray(x**2)


def with_operation(op):
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("p", op(x))
    return model


def solution(x):
    """Of a differential equation."""
    solve = pm.ode.DifferentialEquation(lambda y, t, p: p * y, times=[1.0], n_states=1, n_theta=1)
    return solve(y0=[1.0], theta=[x]).sum()


def minimum(x):
    """Where a function of x is least."""
    at = pt.sqr(x)  # where its search begins
    return pt.optimize.minimize((at - x) ** 2, at)[0]


def each(x):
    """A user's function of each entry."""
    return pt.vectorize(wrapped)(pt.stack([x, x])).sum()


def within(x):
    """The same in an operation that is made of others."""
    inner = pt.dscalar("inner")
    return OpFromGraph([inner], [wrapped(inner)])(x)


OF_USERS = [Own(), wrapped, each, within]


@pytest.mark.parametrize(
    "make", [loop, *(partial(with_operation, op) for op in [*OF_USERS, solution, minimum])]
)
def test_loops_and_operations_of_users_run_in_their_mode_and_in_one_thread(make):
    density = Density(make())
    assert not density.graphs.by_ops
    for cores in (None, 4):
        assert run_module._cores(density, run_module.Budget(400, cores=cores)) == 1


def test_threads_are_those_asked_for_or_as_many_as_processors(monkeypatch):
    density = Density(with_operation(pt.sqr))
    assert density.graphs.by_ops
    monkeypatch.setattr(run_module, "cpu_count", lambda: 3)
    for given, found in [(None, 3), (1, 1), (7, 7)]:
        assert run_module._cores(density, run_module.Budget(400, cores=given)) == found
    assert run_module._cores(density, run_module.Budget(400, most_cores=2)) == 2
    monkeypatch.setattr(run_module, "cpu_count", lambda: 30)
    assert run_module._cores(density, run_module.Budget(400)) == run_module.MOST_CORES


def test_workers_run_them_one_at_a_time_too():
    """A worker of a cluster has threads of its own."""
    density = Density(with_operation(Own()))
    points, payload = density.initial + np.arange(8.0)[:, None], cloudpickle.dumps(density.graphs)
    with ThreadPoolExecutor(4) as pool:
        pieces = np.split(points, 8)
        found = list(pool.map(_evaluate, [payload] * 8, ["density"] * 8, pieces))
    np.testing.assert_allclose(np.concatenate(found), density.graphs.rows("density", points))


def test_workers_take_points_that_are_not_aligned():
    density = Density(with_operation(pt.sqr))
    memory = bytearray(8 * 2 * density.size + 1)
    points = np.frombuffer(memory, dtype="f8", offset=1).reshape(2, density.size)
    assert not points.flags.aligned
    found = _evaluate(cloudpickle.dumps(density.graphs), "density", points)
    np.testing.assert_allclose(found[:, 0], density.values(np.zeros((2, density.size))))
