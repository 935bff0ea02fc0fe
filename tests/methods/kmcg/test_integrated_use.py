"""What follows a likelihood of one's own on a grid, beside the exact GP: few cells, and all products."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from marks import often
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp

AXES = [np.linspace(0.0, 2.0, 5), np.array([0.0, 0.5, 0.9, 2.0])]
MASK = np.ones((5, 4), bool)
MASK[[0, 2, 4], [1, 3, 0]] = False
GRID = sgp.RegularGrid(AXES, MASK)
NEW = sgp.RegularGrid([AXES[0][:3] + 0.05, AXES[1][1:3]])
RNG = np.random.default_rng(5)
F = np.sin(2.0 * GRID.points[:, 0]) + np.cos(GRID.points[:, 1])
Y = RNG.poisson(np.exp(F)).astype(float)
POINT = {"ell": 0.9}
DRAWS = az.from_dict({"posterior": {"ell": np.exp(0.15 * RNG.standard_normal((2, 15)))}})
KINDS = {
    "exact": (sgp.ExactMarginal, {}),
    "cells": (sgp.KMCGMarginal, {}),
    "products": (sgp.KMCGMarginal, {"n_iter": 20}),
}
# By products the 64 pairs of functions that correct the mean are other ones, and move it by a hundredth.
NEAR = {"cells": {"rtol": 1e-6}, "products": {"rtol": 0.015, "atol": 0.01}}
TRUE = pytest.mark.parametrize("kind", often(["cells", "products"], "cells"))


def counts(f):
    return pm.Poisson.dist(mu=pm.math.exp(f))


def kernel(ell):
    return 1.4 * sgp.cov.Product(pm.gp.cov.Matern52, 2, ls=ell)


def made(kind, y=Y, likelihood=counts):
    """A GP with its model; the exact one has the cells as rows."""
    cls, options = KINDS[kind]
    with pm.Model():
        gp = cls(cov_func=kernel(pm.LogNormal("ell", 0.0, 0.4)), **options)
        X = GRID.points if kind == "exact" else GRID
        gp.marginal_likelihood("y", X=X, y=y, likelihood=likelihood)
    return gp


@pytest.fixture(scope="module")
def gps():
    """One of each kind, whose compiled functions all tests share."""
    return {kind: made(kind) for kind in KINDS}


def at(kind, grid):
    return grid.points if kind == "exact" else grid


@TRUE
def test_predictions(gps, kind):
    def found(of):
        gp, new = gps[of], at(of, NEW)
        mixed = gp.predict_posterior(new, DRAWS, progressbar=False, pred_noise=True)
        return [
            *gp.predict(new, POINT, diag=True),
            *gp.predict(new, POINT, diag=True, pred_noise=True),
            mixed["mean"].values,
            mixed["sd"].values,
        ]

    (mean, var, *own), (centre, expected, *others) = found(kind), found("exact")
    assert_allclose(var, expected, rtol=1e-6)
    for each, other in zip([mean, *own], [centre, *others], strict=True):
        assert_allclose(each, other, **NEAR[kind])


@TRUE
@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_rows_left_out(gps, kind):
    own, exact = gps[kind], gps["exact"]
    elpd = [gp.loo(DRAWS, progressbar=False).elpd_i for gp in (own, exact)]
    assert_allclose(*map(np.asarray, elpd), **NEAR[kind])
    pit = [gp.loo_pit(DRAWS, progressbar=False).values for gp in (own, exact)]
    assert_allclose(*pit, **NEAR[kind])


@TRUE
def test_checks(gps, kind):
    """Nothing is missed at cells or between them, and the exact GP of the same rows is the same."""
    found = gps[kind].check(DRAWS, progressbar=False, num_samples=5)
    assert found.attrs["verdict"].startswith("Good")
    assert abs(found.attrs["gap"]) < 1e-6
    for X in (GRID, NEW.points):
        assert gps[kind].check(POINT, X, progressbar=False).attrs["verdict"].startswith("Good")


def test_a_file_of_predictions(gps, tmp_path):
    """Of few cells the exact GP, which a file can hold; products are refused in words."""
    path = gps["cells"].export(DRAWS, tmp_path / "gp", num_samples=None, progressbar=False)
    found = sgp.load_predictor(path).predict(NEW.points)
    expected = gps["cells"].predict_posterior(NEW.points, DRAWS, progressbar=False)
    for each in ("mean", "sd"):
        assert_allclose(found[each], expected[each], rtol=1e-8)
    with pytest.raises(ValueError, match="predicts from what no file can hold"):
        gps["products"].export(DRAWS, tmp_path / "other", progressbar=False)


def test_other_data_and_other_models_leave_it_as_it_is():
    """Gaussian targets in given=, a sum with another GP, and a Gaussian likelihood afterwards."""
    gp = made("cells")
    before = gp.approx, gp.rank, gp.feature_map
    given = {"X": GRID, "y": F, "sigma": 0.1}
    mean, _ = gp.predict(GRID, POINT, diag=True, given=given)
    with pm.Model():
        other = sgp.KMCGMarginal(cov_func=kernel(0.9))
        other.marginal_likelihood("y", X=GRID, y=F, sigma=0.1)
        assert_allclose(mean, other.predict(GRID, {}, diag=True)[0], rtol=1e-8)
        assert (other.approx, other.likelihood_path) == ("DTC", "exact")
    assert (gp.approx, gp.rank, gp.feature_map) == before
    assert gp.approx == "FITC"
    with pm.Model():
        total = gp + sgp.KMCGMarginal(cov_func=kernel(0.5))
        assert total.approx == "DTC"


def test_classes():
    """Probabilities of three ordered classes at new cells."""
    classes = (F > 0.4).astype(int) + (F > 1.2)

    def likelihood(f):
        return pm.OrderedLogistic.dist(f, cutpoints=np.array([-0.3, 1.0]))

    found = {}
    for kind in ("exact", "cells"):
        gp = made(kind, classes, likelihood)
        found[kind] = gp.predict(at(kind, NEW), POINT, diag=True, pred_noise=True)
    for own, exact in zip(found["cells"], found["exact"], strict=True):
        assert own.shape == (6, 3)
        assert_allclose(own, exact, rtol=1e-8)
    assert_allclose(found["cells"][0].sum(axis=1), 1.0, rtol=1e-6)
