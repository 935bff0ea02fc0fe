"""Models that are built in a loop: of the next fold, or of the next simulation."""

import gc
import tracemalloc
import weakref
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from marks import often
from numba.core import event
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

import pymc_scalable_gp as sgp

ROWS = 40
LONG = 4000  # rows where memory is looked at


def fold(number, size=ROWS):
    """Rows of one fold among those of all, whose ranges differ too."""
    rng = np.random.default_rng(number)
    X = (1.0 + 0.1 * number) * rng.uniform(-1.0, 1.0, (size, 2))
    return X, np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(size)


def kernel(d=2):
    return pm.HalfNormal("eta", 1.0) ** 2 * pm.gp.cov.ExpQuad(d, ls=pm.HalfNormal("ell", shape=d))


def marginal(kind, columns=(0, 1), **options):
    """Adds a marginal likelihood of a fold to the model."""

    def add(X, y):
        gp = kind(cov_func=kernel(len(columns)), **options)
        gp.marginal_likelihood("y", X=X[:, : len(columns)], y=y, sigma=pm.HalfNormal("sigma", 1.0))
        return gp

    return add


def latent(kind, **options):
    def add(X, y):
        gp = kind(cov_func=kernel(), **options)
        f = gp.prior("f", X)
        pm.Normal("y", f, 0.1, observed=pm.Data("targets", y))
        return gp

    return add


def fixed(**options):
    """GRIEF with a fixed kernel and free weights: its rows are summarised."""

    def add(X, y):
        cov_func = pm.gp.cov.ExpQuad(2, ls=0.5)
        gp = sgp.GriefGP(cov_func=cov_func, grid=5, rank=12, approx="DTC", **options)
        w = pm.HalfNormal("w", 1.0, shape=gp.build(X))
        gp.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1.0), weights=w)
        return gp

    return add


def categories(X, y):
    """SKIP with a column of few values and one of categories."""
    few = np.column_stack([X[:, 0], np.arange(len(X)) % 3 + X[0, 0], np.arange(len(X)) % 2])
    smooth = pm.gp.cov.ExpQuad(3, ls=pm.HalfNormal("ell", shape=2), active_dims=[0, 1])
    cov_func = smooth * sgp.cov.Hamming(3, ls=1.0, active_dims=[2])
    gp = sgp.SKIPMarginal(cov_func=cov_func, rank=5, grid_size=20)
    gp.marginal_likelihood("y", X=few, y=y, sigma=0.1)
    return gp


KINDS = {
    "grief": marginal(sgp.GriefGP, grid=5, rank=12),
    "grief latent": latent(sgp.GriefGP, grid=5, rank=12),
    "summarized": fixed(),
    "rotated": fixed(rotate=True),
    "skip": marginal(sgp.SKIPMarginal, rank=6, grid_size=20),
    "skip products": marginal(sgp.SKIPMarginal, rank=6, grid_size=20, n_iter=10),
    "skip latent": latent(sgp.SKIPLatent, rank=6, grid_size=20),
    "softki": marginal(sgp.SoftKIMarginal, inducing=8),
    "softki latent": latent(sgp.SoftKILatent, inducing=8),
    "cholqr": marginal(sgp.CholQRMarginal, n_inducing=8),
    "kmcg": marginal(sgp.KMCGMarginal, n_iter=8),
    "vecchia": marginal(sgp.VecchiaMarginal, n_inducing=8, neighbors=5, block=4),
    "vecchia latent": latent(sgp.VecchiaLatent, n_inducing=8, neighbors=5, block=4),
    "exact": marginal(sgp.ExactMarginal),
    "categories": categories,
}


def constants(model) -> Counter:
    """What PyTensor bakes into the machine code of a model's density, and looks for in its cache."""
    found = (v.data for v in ancestors([model.logp()]) if isinstance(v, Constant))
    arrays = (np.asarray(v) for v in found if isinstance(v, np.ndarray | np.number | int | float))
    return Counter((a.dtype.str, a.shape, a.tobytes()) for a in arrays)


@pytest.mark.filterwarnings("ignore:the features do not explain")
@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize(
    "kind",
    often(
        KINDS, "grief", "grief latent", "rotated", "skip products", "softki", "kmcg", "vecchia",
        "categories",
    ),
)  # fmt: skip
def test_data_are_no_constants_of_the_graph(kind):
    found = []
    for number in range(2):
        with pm.Model() as model:
            KINDS[kind](*fold(number))
        found.append(constants(model))
    assert found[0] == found[1]


@contextmanager
def counted():
    """Names of the functions that Numba compiles within."""
    names = []

    class Listener(event.Listener):
        def on_start(self, e):
            names.append(e.data["dispatcher"].py_func.__name__)

        def on_end(self, e):
            pass

    with event.install_listener("numba:compile", Listener()):
        yield names


def run(add, number):
    """A model of one fold, its maximum and predictions; weak references to what should go."""
    X, y = fold(number, LONG)
    with pm.Model() as model:
        gp = add(X, y)
        point = pm.find_MAP(progressbar=False, jitter=False, return_inferencedata=True)
        mean, _ = gp.predict(X[:3, :1], point, diag=True)
    assert np.isfinite(mean).all()
    return [weakref.ref(model), weakref.ref(gp), weakref.ref(gp.feature_map)]


def own_memory() -> int:
    """Bytes that this package's lines asked for, which someone still holds."""
    gc.collect()
    ours = tracemalloc.Filter(True, str(Path(sgp.__file__).parent / "*"))
    snapshot = tracemalloc.take_snapshot().filter_traces([ours])
    return sum(trace.size for trace in snapshot.traces)


@pytest.mark.slow
def test_models_of_other_data_compile_nothing_and_are_collected():
    add = marginal(sgp.GriefGP, columns=(0,), grid=5, rank=5)
    run(add, 0)
    tracemalloc.start()
    try:
        before = own_memory()
        with counted() as compiled:
            held = run(add, 1)
        growth = own_memory() - before
    finally:
        tracemalloc.stop()
    assert compiled == []
    assert [ref() for ref in held] == [None, None, None]
    # PyTensor's Numba back-end never lets go of a graph, nor of its data: X and y. No more stays.
    assert growth < 3 * 8 * LONG


def test_inputs_and_targets_are_copies():
    X, y = fold(0)
    with pm.Model() as model:
        marginal(sgp.GriefGP, grid=5, rank=12)(X, y)
    logp = model.compile_logp(mode="FAST_COMPILE")
    point = model.initial_point()
    before = logp(point)
    X[:], y[:] = 0.0, 0.0
    assert logp(point) == before
    assert model.rvs_to_values[model["y"]].name == "y"
