"""Compiled predictors: shared by threads, and kept for the next call with the same data."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import cloudpickle
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_array_equal
from pytensor.compile.executor import Function
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core import gp as gp_module

rng = np.random.default_rng(11)
X = rng.uniform(0.0, 1.0, (30, 1))
y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(30)
X_NEW = np.linspace(0.0, 1.0, 9)[:, None]
KERNEL = pm.gp.cov.Matern52(1, ls=0.3)
MAKERS = {
    "grief": lambda: sgp.GriefGP(cov_func=KERNEL, rank=12),
    "vecchia": lambda: sgp.VecchiaMarginal(cov_func=KERNEL, n_inducing=5, neighbors=5),
    "kmcg": lambda: sgp.KMCGMarginal(cov_func=KERNEL, n_iter=12),
}


@pytest.fixture
def made(request):
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        gp = MAKERS[request.param]()
        gp.marginal_likelihood("y", X, y, sigma)
    return gp, model


@pytest.fixture
def compiled(monkeypatch):
    """Numbers of functions that were compiled."""
    count, init = [], Function.__init__
    monkeypatch.setattr(
        Function, "__init__", lambda self, *a, **k: (count.append(1), init(self, *a, **k))[1]
    )
    return count


@pytest.mark.parametrize("made", MAKERS, indirect=True)
@pytest.mark.parametrize("diag", [True, False])
def test_threads_share_a_predictor(made, diag):
    gp, model = made
    points = [{"sigma": value} for value in (0.05, 0.1, 0.2, 0.4)]
    expected = [gp.predict(X_NEW, point, diag=diag, model=model) for point in points]
    start = Barrier(len(points))

    def repeat(k):
        start.wait()
        return [gp.predict(X_NEW, points[k], diag=diag, model=model) for _ in range(15)]

    with ThreadPoolExecutor(len(points)) as pool:
        for found, wanted in zip(pool.map(repeat, range(len(points))), expected, strict=True):
            for pair in found:
                assert_array_equal(pair[0], wanted[0])
                assert_array_equal(pair[1], wanted[1])


@pytest.mark.parametrize(("made", "few"), [("grief", 0), ("grief", 1), ("vecchia", 0)], indirect=["made"])
def test_calls_with_neighbors_or_few_rows_take_one_blas_thread(made, few, monkeypatch):
    """And leave as many as before; the exact GP, and classes without neighbours, take all there are."""
    gp, model = made
    monkeypatch.setattr(gp_module, "FEW_ROWS", len(X) - 1 + few)
    limits, limit = [], ThreadpoolController.limit
    monkeypatch.setattr(
        ThreadpoolController, "limit", lambda self, **k: (limits.append(k), limit(self, **k))[1]
    )
    wanted = [{"limits": 1}] if few or isinstance(gp, sgp.VecchiaMarginal) else []
    options, point = {"model": model}, {"sigma": 0.2}
    draws = xr.Dataset({"sigma": (("chain", "draw"), np.linspace(0.2, 0.3, 30)[None])})
    calls = [
        lambda: gp.predict(X_NEW, point, **options),
        lambda: gp.predict_posterior(X_NEW, draws, progressbar=False, **options),
        lambda: gp.check(point, rows=10, progressbar=False, **options),
        lambda: gp.loo(draws, progressbar=False, **options),
    ]
    for call in calls:
        limits.clear()
        with threadpool_limits(2, user_api="blas"):
            before = threadpool_info()
            call()
            assert threadpool_info() == before
        # Searches by scikit-learn set limits as well, with the name of the libraries.
        assert [each for each in limits if "user_api" not in each] == wanted
    limits.clear()
    gp.predict(X_NEW, point, exact=True, **options)
    assert ({"limits": 1} in limits) == few


@pytest.mark.parametrize("made", ["grief", "vecchia"], indirect=True)
def test_predictors_of_given_data_are_kept(made, compiled):
    gp, model = made
    point, kinds = {"sigma": 0.2}, ({}, {"X": X[:20], "y": y[:20], "sigma": 0.2})
    first = [gp.predict(X_NEW, point, given=given, model=model) for given in kinds]
    before = len(compiled)
    for given, wanted in zip(kinds, first, strict=True):
        again = {name: np.copy(value) for name, value in given.items()}
        assert_array_equal(gp.predict(X_NEW, point, given=again, model=model)[0], wanted[0])
    assert len(compiled) == before
    other = kinds[1] | {"y": y[:20] + 1.0}
    assert np.abs(gp.predict(X_NEW, point, given=other, model=model)[0] - first[1][0]).max() > 0.5
    third = kinds[1] | {"sigma": 2.0}
    assert np.abs(gp.predict(X_NEW, point, given=third, model=model)[0] - first[1][0]).max() > 0.1


@pytest.mark.parametrize("made", ["grief"], indirect=True)
def test_kept_given_data_follow_their_variables(made):
    """Data that `pm.set_data` replaced are not those of the call before."""
    gp, model = made
    with model:
        targets = pm.Data("targets", y)
        given = {"X": X, "y": targets, "sigma": 0.2}
        first = gp.predict(X_NEW, {"sigma": 0.2}, given=given)[0]
        pm.set_data({"targets": y + 1.0})
        assert np.abs(gp.predict(X_NEW, {"sigma": 0.2}, given=given)[0] - first).max() > 0.5


@pytest.mark.parametrize("made", ["grief"], indirect=True)
def test_given_variables_of_equal_values_are_told_apart(made):
    gp, model = made
    with model:
        first, second = pm.Data("first", y), pm.Data("second", y)
        rows = {"X": X, "sigma": 0.2}
        gp.predict(X_NEW, {"sigma": 0.2}, given=rows | {"y": first})
        pm.set_data({"first": y + 1.0})
        found = gp.predict(X_NEW, {"sigma": 0.2}, given=rows | {"y": second})
    assert_array_equal(found[0], gp.predict(X_NEW, {"sigma": 0.2}, model=model)[0])


def test_a_gp_that_has_predicted_can_be_pickled():
    """Compiled functions stay behind: that of joint predictions cannot be pickled."""
    X, Xnew = np.linspace(0.0, 1.0, 12)[:, None], np.array([[0.3], [0.35]])
    with pm.Model() as model:
        ell = pm.Gamma("ell", 3, 3)
        cov_func = pm.gp.cov.Matern52(1, ls=ell)
        gp = sgp.VecchiaMarginal(cov_func=cov_func, n_inducing=3, neighbors=3)
        gp.marginal_likelihood("y", X=X, y=np.sin(6.0 * X[:, 0]), sigma=0.1)
    wanted = gp.predict(Xnew, {"ell": 0.4})
    sent_model, sent = cloudpickle.loads(cloudpickle.dumps((model, gp)))
    method = cloudpickle.loads(cloudpickle.dumps(gp.predict))  # as a task of Dask's is sent
    for again in (sent.predict(Xnew, {"ell": 0.4}, model=sent_model), method(Xnew, {"ell": 0.4})):
        for found, value in zip(again, wanted, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-12)
