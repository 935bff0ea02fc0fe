"""Where the verdict of a check turns: just below each of its limits, and just above."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.checking.verdict import LIMITS, verdict

RNG = np.random.default_rng(2)
X = RNG.uniform(-1.0, 1.0, (30, 1))
Y = np.sin(3.0 * X[:, 0]) + 0.2 * RNG.standard_normal(30)


@pytest.fixture(scope="module")
def sound():
    """An exact GP and its check, with figures of an approximation put in that are all good."""
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ell", 0.0, 0.5)))
        gp.marginal_likelihood("y", X, Y, 0.2)
        draws = xr.Dataset({"ell": (("chain", "draw"), 0.5 * np.exp(0.1 * RNG.standard_normal((1, 30))))})
        found = gp.check(draws, rows=20, neighbors=None, progressbar=False, model=model)
    zero = np.zeros(found.sizes["obs"])
    found = found.assign(
        mean_shift=("obs", zero), sd_ratio=("obs", zero + 1.0), missing=("obs", zero),
        moved=("hyperparameter", [0.0]),
    ).assign_coords(hyperparameter=["ell"])  # fmt: skip
    found.attrs |= {"k_hat": 0.1, "lost": 0.1, "missing_mean": 0.0, "holds_residual": False}
    return gp, found


def changed(check, name, value):
    """The check with one figure at a value, which for those over rows more than 5% of them have."""
    check = check.copy(deep=True)
    if name in ("residual", "neighbors_moved", "missing_mean"):
        check.attrs[name] = value
    elif name == "k_hat":
        check.attrs |= {name: value, "lost": 1.01 * LIMITS["even"]}
    elif name == "logdet":
        check.attrs |= {"logdet_se": 2.0 * value, "logdet_excess": 0.0}
    elif name == "logdet_excess":
        check.attrs |= {"logdet_se": 0.0, "logdet_excess": 2.0 * value}
    elif name == "excess":
        check["excess"] = ("few", [0.0, value])
    elif name == "lost_recomputed":
        check["excess"] = ("few", [0.0, 0.0])
        check.attrs |= {"gap_recomputed": 0.0, name: value}
    elif name == "k_hat_functions":
        check.attrs |= {"modes_missing": 0, "gap_laplace": 0.0, "lost_laplace": 0.0, name: value}
    elif name == "even":
        check.attrs |= {"k_hat": np.nan, "lost": value}
    elif name == "even with a tail":
        check.attrs |= {"k_hat": 1.01 * LIMITS["k_hat"], "lost": value}
    elif name == "moved":
        check["moved"] = check.moved + value
    else:
        values = check[name].values
        values[: len(values) // 4] = value
    return check


FIGURES = {
    "k_hat": (LIMITS["k_hat"], "posterior of the hyperparameters is another"),
    "moved": (LIMITS["moved"], "posterior of the hyperparameters is another"),
    "moved, down": (-LIMITS["moved"], "posterior of the hyperparameters is another"),
    "even": (LIMITS["even"], "posterior of the hyperparameters is another"),
    "even with a tail": (LIMITS["even"], "posterior of the hyperparameters is another"),
    "mean_shift": (LIMITS["mean_shift"], "predictions differ"),
    "sd_ratio": (np.exp(LIMITS["sd_ratio"]), "predictions differ"),
    "sd_ratio, down": (np.exp(-LIMITS["sd_ratio"]), "predictions differ"),
    "missing_mean": (LIMITS["missing"], "sigma may contain variance"),
    "residual": (LIMITS["residual"], "conjugate gradients have not converged"),
    "logdet": (LIMITS["logdet"], "log determinant is uncertain"),
    "logdet_excess": (LIMITS["logdet"], "log determinant is uncertain"),
    "neighbors_moved": (LIMITS["neighbors_moved"], "call gp.rebuild"),
    "excess": (LIMITS["missing"], "frozen too far"),
    "lost_recomputed": (LIMITS["frozen"], "frozen too far"),
    "k_hat_functions": (LIMITS["k_hat"], "Laplace's approximation is poor"),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_is_good_up_to_its_limit_and_poor_beyond(sound, figure):
    gp, check = sound
    limit, words = FIGURES[figure]
    name = figure.partition(",")[0]
    one = 1.0 if name == "sd_ratio" else 0.0
    for share, poor in ((0.99, False), (1.01, True)):
        at = changed(check, name, one + share * (limit - one))
        text = verdict(gp, gp.training, at)[0]
        assert (words in text) == poor, text
        assert ("Poor" in text) == poor, text


def test_neighbors_chosen_elsewhere_are_no_fault_where_all_rows_were_compared(sound):
    """With the exact GP, or with neighbours chosen at the draws; they come first where that is poor."""
    gp, check = sound
    moved = changed(check, "neighbors_moved", 1.01 * LIMITS["neighbors_moved"])
    moved.attrs["holds_residual"] = True
    every = moved.copy(deep=True)
    every.attrs["rows"] = gp.training.data.size
    others = moved.assign(logp_all=("few", [0.0, 0.0])).copy(deep=True)
    others.attrs |= {"n": 30, "n_all": 30, "neighbors": 60, "gap_all": 0.0, "lost_all": 0.0}
    for found, words in ((moved, "Poor: neighbors were chosen"), (every, "Good"), (others, "Good")):
        assert verdict(gp, gp.training, found)[0].startswith(words)
        assert "would be others" in verdict(gp, gp.training, found)[1]
    for found, words in ((check, "the exact one: look at"), (every, ". Call gp.rebuild(point)")):
        poor = changed(found, "mean_shift", 2.0 * LIMITS["mean_shift"])
        poor.attrs["holds_residual"] = True
        assert words in verdict(gp, gp.training, poor)[0]


def test_a_basis_that_is_frozen_far_away_is_made_anew(sound):
    """The remedy of whatever else is poor, beyond one posterior sd in either direction."""
    gp, check = sound
    for away, anew in ((-0.99, False), (-1.01, True), (0.99, False), (1.01, True)):
        at = changed(changed(check, "excess", 0.0), "missing_mean", 1.0)
        at["from_reference"] = ("hyperparameter", [away])
        assert ("gp.recentre" in verdict(gp, gp.training, at)[0]) == anew, away


def test_the_limits():
    """Those that the docs name."""
    assert LIMITS["k_hat"] == 0.7
    assert (LIMITS["moved"], LIMITS["mean_shift"], LIMITS["sd_ratio"]) == (0.5, 0.25, 0.1)
    assert (LIMITS["missing"], LIMITS["residual"], LIMITS["logdet"]) == (0.05, 0.01, 1.0)
    assert (LIMITS["frozen"], LIMITS["reference"]) == (1.0, 1.0)
    assert (LIMITS["neighbors_moved"], LIMITS["even"]) == (0.3, 0.5)


@pytest.mark.parametrize(("draws", "words"), [(1, "at this point"), (24, "at these draws"), (25, "Good.")])
def test_what_is_said_of_few_draws(sound, draws, words):
    gp, check = sound
    at = check.copy(deep=True)
    at.attrs["draws"] = draws
    text = verdict(gp, gp.training, at)[0]
    assert "Good" in text
    assert words in text


@pytest.mark.parametrize("name", ["lost", "lost_all", "lost_laplace"])
@pytest.mark.parametrize(("share", "word"), [(0.99, "Good"), (1.01, "Unclear")])
def test_few_draws_whose_densities_differ_are_not_called_good(sound, name, share, word):
    """The sd of the difference says that weights would vary, although so few make none."""
    gp, check = sound
    at = check.copy(deep=True)
    at.attrs |= {"draws": 24, "gap_all": 0.0, "gap_laplace": 0.0} | {name: share * LIMITS["even"]}
    assert verdict(gp, gp.training, at)[0].startswith(word)


def test_no_figure_is_a_negative_zero(sound):
    """Features of all variance leave -1e-16 of it, and a mean that stays moves by that."""
    gp, check = sound
    at = check.copy(deep=True)
    at["missing"] = at.missing - 1e-16
    at["moved"] = at.moved - 1e-3
    at["excess"] = ("few", [-0.0, -0.0])
    at.attrs |= {"missing_mean": -1e-16, "k_hat": -1e-3}
    text = verdict(gp, gp.training, at)[1]
    for words in ("explain 0.0% of the prior variance, 0.0% at", "by +0.00 posterior sds (k-hat 0.00)"):
        assert words in text
    assert "-0.0" not in text
