"""The machinery of `make calibrate`, without a sampler."""

import importlib.util
import sys
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp

pytest.importorskip("nutpie")
sys.path.append(str(Path(__file__).parent))  # as it is for the script

SPEC = importlib.util.spec_from_file_location("calibrate", Path(__file__).with_name("calibrate.py"))
calibrate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(calibrate)
problems, ranks = sys.modules["calibration.problems"], sys.modules["calibration.ranks"]
CASE = calibrate.CASES["ExactMarginal"]


class Fake:
    """Ranks without a model, and the data that they were asked for."""

    def __init__(self):
        self.seen = []

    def replicate(self, truth, f, y, rng):
        self.seen.append(y)
        found = {name: int(rng.integers(100)) for name in calibrate.quantities(CASE)}
        return found | {"ess": 500, "divergences": 0}


def test_a_rank_counts_the_draws_below():
    draws = np.arange(99.0)
    assert [ranks.rank_of(x, draws) for x in (-1.0, 49.5, 99.0)] == [0, 50, 99]
    assert ranks.histogram([0, 9, 10, 99]).tolist() == [2, 1, 0, 0, 0, 0, 0, 0, 0, 1]


def test_uniform_ranks_pass_and_others_fail():
    rng = np.random.default_rng(0)
    assert ranks.p_value(rng.integers(100, size=200)) > 0.01
    shifted = (100 * rng.beta(1.6, 1.0, size=200)).astype(int)
    narrow = (100 * rng.beta(0.5, 0.5, size=200)).astype(int)
    assert ranks.p_value(shifted) < 1e-3
    assert ranks.p_value(narrow) < 1e-3


def test_p_values_of_uniform_ranks_are_uniform():
    rng = np.random.default_rng(1)
    p = np.array([ranks.p_value(rng.integers(100, size=200)) for _ in range(1000)])
    assert_allclose((p < 0.1).mean(), 0.1, atol=0.03)
    assert_allclose((p < 0.01).mean(), 0.01, atol=0.01)


def test_a_run_goes_on_where_it_stopped(tmp_path):
    whole, parts = (calibrate.store_of(CASE, tmp_path / name) for name in ("whole", "parts"))
    calibrate.run(CASE, whole, 7, progressbar=False, fitted=Fake())
    calibrate.run(CASE, parts, 3, progressbar=False, fitted=Fake())
    with parts.path.open("a") as file:
        file.write("3,17,4")  # the process ended here
    again = Fake()
    calibrate.run(CASE, parts, 7, progressbar=False, fitted=again)
    assert parts.path.read_text() == whole.path.read_text()
    assert len(again.seen) == 4
    calibrate.run(CASE, parts, 5, progressbar=False, fitted=Fake())
    assert len(parts.read()) == 7


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_run_that_ended_within_the_head_goes_on(tmp_path, kept):
    store = calibrate.store_of(CASE, tmp_path)
    calibrate.run(CASE, store, 2, progressbar=False, fitted=Fake())
    text = store.path.read_text()
    store.path.write_text("".join(text.splitlines(keepends=True)[:kept]) + "# Ex")
    calibrate.run(CASE, store, 2, progressbar=False, fitted=Fake())
    assert store.path.read_text() == text


def test_each_replication_has_other_data(tmp_path):
    fakes = [Fake(), Fake()]
    for fake, name in zip(fakes, ("a", "b"), strict=True):
        calibrate.run(CASE, calibrate.store_of(CASE, tmp_path / name), 4, False, fake)
    assert_allclose(fakes[0].seen, fakes[1].seen)
    assert len({y[0] for y in fakes[0].seen}) == 4


def test_results_of_other_settings_are_refused(tmp_path):
    store = calibrate.store_of(CASE, tmp_path)
    calibrate.run(CASE, store, 2, progressbar=False, fitted=Fake())
    other = ranks.Store(store.path, "another kernel", store.columns)
    with pytest.raises(ValueError, match="other settings"):
        other.read()


def test_the_table_comes_from_the_files(tmp_path):
    assert calibrate.report(calibrate.CASES.values(), tmp_path) == []
    store = calibrate.store_of(CASE, tmp_path)
    calibrate.run(CASE, store, 200, progressbar=False, fitted=Fake())
    (line,) = calibrate.report(calibrate.CASES.values(), tmp_path)
    text = ranks.table([line])
    assert "| ExactMarginal |" in text
    assert "| 200 |" in text
    assert text.splitlines()[2].endswith("| yes |")
    assert "0.002, 0.01 / 5 tests" in text
    poor = ranks.Line("X", "", True, {"sigma": np.zeros(200, int)}, 0, 300)
    assert ranks.table([poor]).splitlines()[2].endswith("| **no** (expected) |")
    few = ranks.Line("X", "", False, {"sigma": np.zeros(20, int)}, 0, 300)
    assert ranks.table([few]).splitlines()[2].endswith("| too few yet |")


def test_rows_of_the_page_stay_where_there_are_no_results():
    page = calibrate.PAGE.read_text(encoding="utf-8")
    old = page.split(calibrate.BEGIN)[1].split(calibrate.END)[0]
    line = ranks.Line("VecchiaMarginal", "", False, {"sigma": np.arange(100)}, 0, 300)
    found = calibrate.merged(old, ranks.table([line]))
    row = ranks.table([line]).splitlines()[2]
    others = [each for each in old.splitlines() if not each.startswith("| VecchiaMarginal |")]
    assert row in found.splitlines()
    assert set(found.splitlines()) - {row} >= {each for each in others if each.startswith("| ")}
    assert found.count("| VecchiaMarginal |") == 1
    tests = sum(len(each.split(" | ")[3].split(", ")) for each in found.splitlines()[2:-2])
    assert found.endswith(f"0.01 / {tests} tests (Bonferroni).")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ExactMarginal, weights", "VecchiaMarginal, Bernoulli"])
def test_draws_by_weights(name):
    fitted = sys.modules["calibration.sampling"].sampler_of(calibrate.CASES[name])
    problem = fitted.case.problem
    rng = np.random.default_rng(4)
    truth = problem.truth(rng)
    found = fitted.replicate(truth, *problem.simulate(truth, rng), rng)
    assert set(found) == {*calibrate.quantities(fitted.case), "ess", "divergences"}
    assert all(0 <= found[label] < 100 for label in calibrate.quantities(fitted.case))
    assert found["ess"] >= 200


def test_data_are_those_of_the_exact_kernel():
    rng = np.random.default_rng(2)
    problem, truth = problems.Problem(problems.LINE[:3]), {"ell": 0.3, "eta": 1.2, "sigma": 0.5}
    y = np.array([problem.simulate(truth, rng)[1] for _ in range(20_000)])
    square = (problem.X - problem.X.T) ** 2
    expected = 1.44 * np.exp(-0.5 * square / 0.09) + 0.25 * np.eye(3)
    assert_allclose(np.cov(y.T), expected, atol=0.06)


def test_true_weights_have_the_prior_of_the_model():
    with pm.Model():
        w = sgp.weights_prior("w", 3)
    location, scale = problems.weights_location_scale()
    *_, mu, sigma = w.owner.inputs
    assert_allclose([mu.eval().item(), sigma.eval().item()], [location, scale], rtol=1e-6)


@pytest.mark.parametrize("name", ["VecchiaMarginal", "GriefGP, DTC", "GriefGP, type I, weights"])
def test_models_have_the_names_that_are_ranked(name):
    case = calibrate.CASES[name]
    rng = np.random.default_rng(3)
    truth = case.problem.truth(rng)
    _, y = case.problem.simulate(truth, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few features, on purpose
        model, gp = case.model(y)
    assert {v.name for v in model.free_RVs} == set(truth)
    assert gp.likelihood_path == ("summarized" if case.renew else "vecchia" if "V" in name else "full")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ExactMarginal", "GriefGP, type I, scale"])
def test_the_sampler_sees_replaced_data(name):
    """`Fitted` compares the sampler's density with that of a model of the new data."""
    fitted = sys.modules["calibration.sampling"].Fitted(calibrate.CASES[name])
    problem = fitted.case.problem
    rng = np.random.default_rng(4)
    for _ in range(2):
        truth = problem.truth(rng)
        found = fitted.replicate(truth, *problem.simulate(truth, rng), rng)
    assert fitted.checked
    assert set(found) == {*calibrate.quantities(fitted.case), "ess", "divergences"}
    assert all(0 <= found[name] < 100 for name in calibrate.quantities(fitted.case))
