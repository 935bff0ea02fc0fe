"""Which class and settings for which data: costs by given rates, losses by dense algebra."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy.stats import multivariate_normal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.advice.candidates import Candidate, candidates
from pymc_scalable_gp.advice.costs import Cost
from pymc_scalable_gp.advice.facts import count_distinct, find_facts, find_grid
from pymc_scalable_gp.advice.loss import (
    divergence,
    expected_loss,
    grid_stretch,
    neighbors_covariance,
    of_features,
)
from pymc_scalable_gp.advice.machine import Rates, Work
from pymc_scalable_gp.advice.sample import Sample, profile_noise, take_sample
from pymc_scalable_gp.advice.suggest import code_of, compare

GIB = 2.0**30
RATES = Rates(5e10, 3e10, 3e9, 5e8, 5e8, 5e7, 16 * GIB, 2)
RNG = np.random.default_rng(0)


def plane(n, d=2):
    X = np.random.default_rng(1).uniform(-1.0, 1.0, (n, d))
    return X, np.sin(3.0 * X[:, 0]) + 0.1 * np.random.default_rng(2).standard_normal(n)


def table(X, cov, y=None, *, is_free=True, is_normal=True, minutes=60.0, memory=8.0, grid=None):
    """What `suggest` gives on a machine of `RATES`."""
    facts = find_facts(X, grid, cov, is_free, is_normal)
    sample = take_sample(X, y, cov, None, None, facts.is_dear, 0)
    grid = grid or (sgp.RegularGrid.from_points(X)[0] if facts.has_grid else None)
    return compare(facts, sample, RATES, minutes, memory * GIB, grid)


def sample_of(X, cov, noise=0.01):
    return Sample(X, X, cov, None, None, noise)


def dense(cov, X, Z=None):
    return cov(X).eval() if Z is None else cov(X, Z).eval()


# -- what comes first -------------------------------------------------------------------------------------


def test_small_data_lose_nothing():
    X, y = plane(300, 3)
    found = table(X, pm.gp.cov.Matern32(3, ls=0.3), y)
    assert found.candidate.values[0] == "ExactMarginal()"
    assert float(found.loss[0]) == 0.0
    assert "VecchiaMarginal" in found.class_name.values
    assert not {"GriefGP", "SKIPMarginal"} & set(found.class_name.values)  # no product


@pytest.mark.slow
def test_a_smooth_product_kernel_on_many_rows_takes_eigenfunctions():
    X, _ = plane(50_000, 2)
    found = table(X, pm.gp.cov.ExpQuad(2, ls=1.0), memory=2.0)
    assert found.class_name.values[0] == "GriefGP"
    assert float(found.loss[0]) * 50.0 < 1.0
    assert "ExactMarginal" not in found.class_name.values


def test_a_regular_series_takes_products_where_the_budget_allows():
    X = 0.1 * np.arange(30_000.0)[:, None]
    found = table(X, pm.gp.cov.ExpQuad(1, ls=5.0), minutes=1e6)
    kmcg = found.isel(candidate=found.class_name.values == "KMCGMarginal")
    assert kmcg.fits.all()
    assert (kmcg.loss.values < 5.0).all()
    features = found.isel(candidate=found.class_name.values == "GriefGP")
    assert (features.loss.values > 100.0).all()  # 600 lengthscales are too many for them
    assert "a regular series of 30000 cells" in found.attrs["facts"]


def test_code_for_a_grid_says_how_to_make_it():
    axis = np.arange(40.0)
    X = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    facts = find_facts(X, None, pm.gp.cov.ExpQuad(2, ls=3.0), True, True)
    assert facts.grid == (40, 40)
    assert facts.has_grid
    kmcg = next(c for c in candidates(facts) if c.class_name == "KMCGMarginal")
    assert "RegularGrid.from_points(X)" in code_of(kmcg)


def test_a_fixed_kernel_is_summarised_at_a_cost_that_does_not_depend_on_rows():
    X, _ = plane(2000, 2)
    facts = find_facts(X, None, pm.gp.cov.ExpQuad(2, ls=1.0), None, True)
    assert not facts.is_free
    seconds = {}
    for n in (2000, 1_000_000):
        many = replace(facts, n=n, distinct=n)
        seconds[n] = {
            str(c): c.cost.seconds(c.class_name, RATES)
            for c in candidates(many)
            if c.class_name == "GriefGP"
        }
    assert seconds[2000] == seconds[1_000_000]
    assert len(seconds[2000]) == 3


def test_categories_take_inducing_points_among_the_rows():
    X = np.random.default_rng(0).integers(0, 4, (200, 6)).astype(float)
    found = table(X, sgp.cov.Hamming(6, ls=1.0), memory=4.0)
    names = set(found.class_name.values)
    assert "CholQRMarginal" in names
    assert not names & {"GriefGP", "SKIPMarginal", "KMCGMarginal", "SoftKIMarginal"}


def test_other_likelihoods_take_latent_classes():
    X, _ = plane(6000, 4)
    found = table(X, pm.gp.cov.ExpQuad(4, ls=1.0), is_normal=False, minutes=1e4)
    assert set(found.class_name.values) == {
        "GriefGP",
        "SKIPLatent",
        "SoftKILatent",
        "VecchiaLatent",
    }


def test_few_rows_have_a_latent_class_too():
    X, _ = plane(20, 2)
    found = table(X, pm.gp.cov.Matern52(2, ls=1.0), is_normal=False, minutes=1e4)
    assert set(found.class_name.values) == {"VecchiaLatent"}


# -- budgets ----------------------------------------------------------------------------------------------


def test_a_budget_that_nothing_meets_names_the_nearest():
    X, y = plane(500, 2)
    found = table(X, pm.gp.cov.ExpQuad(2, ls=1.0), y, minutes=0.5)
    assert not found.fits.any()
    nearest = found.candidate.values[found.minutes.values.argmin()]
    assert found.candidate.values[0] == nearest
    factor = float(found.minutes[0]) / 0.5
    assert (
        f"Nothing meets 0.5 minutes and 8 GiB: the nearest is {nearest}" in found.attrs["verdict"]
    )
    assert f"{factor:.3g} times the minutes" in found.attrs["verdict"]
    assert "times the memory" not in found.attrs["verdict"]


def test_a_memory_that_nothing_meets_is_named():
    X, y = plane(500, 2)
    found = table(X, pm.gp.cov.Matern32(2, ls=1.0), y, memory=0.1)
    assert "times the memory" in found.attrs["verdict"]


def test_those_within_the_budget_come_first_by_loss():
    X, y = plane(3000, 4)
    found = table(X, pm.gp.cov.ExpQuad(4, ls=0.4), y, minutes=30.0)
    fits, loss = found.fits.values, found.loss.values
    assert fits.any()
    assert not fits.all()
    assert (np.diff(fits.astype(int)) <= 0).all()
    inside = loss[fits & np.isfinite(loss)]
    assert (np.diff(inside[inside * 3.0 > 1.0]) >= 0.0).all()
    assert "would lose" in found.attrs["verdict"]


def test_slower_machines_take_longer():
    work = Work(product=1e9, small=1e6)
    slow = RATES._replace(product=RATES.product / 2.0)
    assert work.seconds(slow) - work.seconds(RATES) == pytest.approx(1e9 / RATES.product)
    cost = Cost(work, 1e6)
    facts = find_facts(plane(10)[0], None, pm.gp.cov.ExpQuad(2, ls=1.0), True, True)
    held = cost.bytes(facts, RATES)
    assert cost.bytes(facts, RATES._replace(chains=4)) == 2.0 * held


# -- losses -----------------------------------------------------------------------------------------------


def test_the_divergence_is_that_of_dense_algebra():
    X, _ = plane(60)
    cov = 2.0 * pm.gp.cov.ExpQuad(2, ls=0.5)
    sample = sample_of(X, cov, 0.1)
    A = dense(cov, X) + np.diag(RNG.uniform(0.1, 0.4, 60))
    exact = dense(cov, X) + 0.1 * np.eye(60)
    expected = 0.5 * (
        np.trace(np.linalg.solve(A, exact)) - 60.0
        + np.linalg.slogdet(A)[1] - np.linalg.slogdet(exact)[1]
    )  # fmt: skip
    assert divergence(sample, A) == pytest.approx(expected * 1000.0 / 60.0)


@pytest.mark.parametrize(("treatment", "corrected"), [("FITC", True), ("DTC", False)])
def test_the_loss_of_few_eigenfunctions_is_that_of_the_class(treatment, corrected):
    X, _ = plane(80)
    cov = pm.gp.cov.ExpQuad(2, ls=0.5)
    gp = sgp.GriefGP(cov_func=cov, rank=4)
    gp.build(X)
    phi = gp.features(X).eval()
    sample = sample_of(X, cov, 0.1)
    A = phi @ phi.T + 0.1 * np.eye(80)
    A += corrected * np.diag(1.0 - (phi**2).sum(axis=1))
    candidate = Candidate("GriefGP", {"rank": 4}, Cost(Work(), 0.0), treatment=treatment)
    found = expected_loss(candidate, sample, None, 80)
    assert found.nats == pytest.approx(divergence(sample, A))
    assert found.nats > 10.0
    assert found.missed == pytest.approx(1.0 - (phi**2).sum() / 80.0)


def test_the_loss_of_inducing_points_falls_with_their_number():
    X, _ = plane(120)
    sample = sample_of(X, pm.gp.cov.ExpQuad(2, ls=0.4), 0.01)
    losses = [
        expected_loss(
            Candidate("CholQRMarginal", {"n_inducing": m}, Cost(Work(), 0.0), treatment="VFE"),
            sample, None, 120,
        ).nats
        for m in (5, 20, 80)
    ]  # fmt: skip
    assert losses[0] > 10.0 * losses[1] > 100.0 * losses[2] > 0.0


def test_the_bound_loses_the_missing_variance_over_the_noise():
    X, _ = plane(50)
    sample = sample_of(X, pm.gp.cov.ExpQuad(2, ls=0.4), 0.02)
    phi = 0.5 * np.linalg.cholesky(sample.K + 1e-9 * np.eye(50))
    gained = of_features(sample, phi, "VFE") - of_features(sample, phi, "DTC")
    assert gained == pytest.approx(1000.0 / 50.0 * 0.5 * 0.75 * 50.0 / 0.02)


def test_neighbours_are_those_of_the_class():
    X, y = plane(90)
    cov = pm.gp.cov.Matern32(2, ls=0.5)
    with pm.Model() as model:
        gp = sgp.VecchiaMarginal(cov_func=cov, n_inducing=0, neighbors=6, block=4)
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.3)
    logp = float(model.compile_logp()({}))
    sample = sample_of(X, cov, 0.09)
    A = neighbors_covariance(sample, np.zeros((90, 0)), 6, 4)
    assert multivariate_normal(np.zeros(90), A).logpdf(y) == pytest.approx(logp, rel=1e-8)


def test_all_neighbours_lose_nothing():
    X, _ = plane(70)
    sample = sample_of(X, pm.gp.cov.Matern52(2, ls=0.4), 0.01)
    assert divergence(sample, neighbors_covariance(sample, np.zeros((70, 0)), 70, 8)) < 1e-6
    assert divergence(sample, neighbors_covariance(sample, np.zeros((70, 0)), 4, 8)) > 1.0


def test_more_steps_and_probes_lose_less():
    X = np.arange(300.0)[:, None]
    grid, _ = sgp.RegularGrid.from_points(X)
    sample = sample_of(X, pm.gp.cov.Matern32(1, ls=4.0), 0.05)

    def loss(steps, probes):
        kmcg = Candidate("KMCGMarginal", {"n_iter": steps, "probes": probes}, Cost(Work(), 0.0))
        return expected_loss(kmcg, sample, lambda: grid_stretch(grid, 200), 10_000).nats

    assert loss(3, 8) > loss(12, 8) + 1.0 > loss(40, 8) + 1.0
    assert loss(60, 2) == pytest.approx(2.0 * loss(60, 8), rel=0.05)


def test_the_noise_is_that_of_the_targets():
    X, _ = plane(400)
    K = dense(pm.gp.cov.ExpQuad(2, ls=0.5), X)
    noisy = np.random.default_rng(5).multivariate_normal(np.zeros(400), K + 0.25 * np.eye(400))
    _, noise, scale = profile_noise(K, noisy, [1.0])
    assert 0.1 < noise < 0.5
    assert scale == 1.0
    assert 4.0 < profile_noise(K, 3.0 * noisy)[2] < 20.0


# -- facts ------------------------------------------------------------------------------------------------


def test_repeated_rows_are_counted():
    X, _ = plane(50)
    assert count_distinct(X) == 50
    assert count_distinct(np.concatenate([X, X[:7]])) == 50
    assert count_distinct(np.array([[0.0], [-0.0]])) == 1


def test_grids_are_found_with_gaps_and_scattered_rows_are_none():
    axis = np.arange(12.0)
    X = np.stack(np.meshgrid(axis, 0.5 * axis, indexing="ij"), axis=-1).reshape(-1, 2)
    kept = np.random.default_rng(0).permutation(144)[:90]
    assert find_grid(X[kept]).shape == (12, 12)
    assert find_grid(X[kept[:20]]) is None
    assert find_grid(plane(90)[0]) is None
    assert find_grid(plane(90, 1)[0]) is None
    assert find_grid(np.delete(axis, 5)[:, None]).shape == (12,)


def test_a_stretch_of_a_grid_lies_side_by_side():
    grid = sgp.RegularGrid([np.arange(50.0), np.arange(3.0)])
    cells = grid_stretch(grid, 100)
    assert len(cells) == 30
    assert (np.diff(np.unique(cells[:, 0])) == 1.0).all()


# -- the public function ----------------------------------------------------------------------------------


def test_it_prints_a_table_a_verdict_and_code():
    X, y = plane(200)
    with pm.Model():
        ell = pm.LogNormal("ell", 0.0, 0.5)
        found = sgp.suggest(X, y, pm.gp.cov.ExpQuad(2, ls=ell), minutes=1000.0, memory=64.0)
    text = str(found)
    assert text.splitlines()[0].split()[0] == "candidate"
    assert len({len(line) for line in text.split("\n\n")[0].splitlines()}) == 1
    assert "at the initial point of the model" in text.replace("\n", " ")
    assert found.attrs["code"].startswith("gp = sgp.")
    assert found.attrs["code"] in text
    chosen = getattr(sgp, str(found.class_name.values[0]))
    chosen(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), **found.settings.values[0])


def test_without_a_kernel_it_says_which_it_took_and_the_seed_decides():
    X, y = plane(150)
    first, second = (sgp.suggest(X, y, minutes=1000.0, memory=64.0) for _ in range(2))
    assert "No cov_func was given" in first.attrs["notes"]
    order = np.argsort(first.candidate.values), np.argsort(second.candidate.values)
    np.testing.assert_array_equal(first.loss.values[order[0]], second.loss.values[order[1]])


def test_a_grid_may_be_given_as_such():
    grid = sgp.RegularGrid([np.arange(15.0), np.arange(12.0)], RNG.random((15, 12)) < 0.7)
    found = sgp.suggest(grid, cov_func=pm.gp.cov.ExpQuad(2, ls=2.0), minutes=1e4, memory=64.0)
    assert "KMCGMarginal" in found.class_name.values
    assert "a grid of 15 x 12 cells" in found.attrs["facts"]
    assert "from_points" not in found.attrs["code"]


@pytest.mark.slow
def test_random_hyperparameters_take_the_point_given():
    X, y = plane(500)
    with pm.Model() as model:
        cov = pm.gp.cov.Matern32(2, ls=pm.LogNormal("ell", 0.0, 0.5))
    near, far = (
        sgp.suggest(X, y, cov, minutes=1e5, memory=64.0, model=model, point={"ell": value})
        for value in (0.05, 2.0)
    )
    name = "VecchiaMarginal(n_inducing=100, neighbors=30, block=16)"
    assert float(near.loss.sel(candidate=name)) != float(far.loss.sel(candidate=name))
    assert "hyperparameters given" in near.attrs["notes"]


@pytest.mark.filterwarnings("error")
def test_columns_that_the_kernel_does_not_use_cost_nothing():
    X, y = plane(300, 3)
    cov = pm.gp.cov.ExpQuad(3, ls=0.5, active_dims=[0, 2])
    found = table(X, cov, y, minutes=1e4)
    assert found.attrs["facts"].startswith("300 rows of 2 inputs")
    alone = table(X[:, [0, 2]], pm.gp.cov.ExpQuad(2, ls=0.5), y, minutes=1e4)
    name = "GriefGP(rank=100)"
    pair = (float(each.loss.sel(candidate=name)) for each in (found, alone))
    assert next(pair) == pytest.approx(next(pair), rel=1e-6)


@pytest.mark.slow
def test_what_cannot_be_known_stands_between_good_and_bad():
    X, y = plane(6000, 4)
    found = table(X, pm.gp.cov.ExpQuad(4, ls=0.3), y, minutes=60.0)
    unknown = np.flatnonzero(np.isnan(found.loss.values) & found.fits.values)
    assert len(unknown)
    before, after = found.loss.values[: unknown[0]], found.loss.values[unknown[-1] + 1 :]
    after = after[found.fits.values[unknown[-1] + 1 :]]
    assert (before <= 100.0).all()
    assert len(after)
    assert (after > 100.0).all()


def test_repeated_rows_draw_a_word():
    X, y = plane(150)
    found = sgp.suggest(np.concatenate([X, X]), np.concatenate([y, y]), minutes=1e3, memory=64.0)
    assert "150 rows repeat the inputs of others" in found.attrs["notes"]


GOOD = plane(30)
WRONG = {
    "one dimension": (ValueError, "reshape", {"X": GOOD[1]}),
    "nan": (ValueError, "NaN", {"X": np.where(np.arange(60).reshape(30, 2) == 3, np.nan, GOOD[0])}),
    "another length": (ValueError, "29 values", {"y": GOOD[1][:-1]}),
    "likelihood": (ValueError, "likelihood must be one of", {"likelihood": "gauss"}),
    "minutes": (ValueError, "minutes must be positive", {"minutes": -1.0}),
    "memory": (ValueError, "memory must be positive", {"memory": 0.0}),
    "memory in words": (TypeError, "memory must be a number", {"memory": "8 GiB"}),
    "seed": (ValueError, "random_seed", {"random_seed": -1}),
    "kernel": (TypeError, "pm.gp.cov kernel", {"cov_func": "ExpQuad"}),
    "noise": (ValueError, "WhiteNoise", {"cov_func": pm.gp.cov.WhiteNoise(0.1)}),
    "not finite": (ValueError, "not finite", {"cov_func": np.inf * pm.gp.cov.ExpQuad(2, ls=1.0)}),
    "columns": (ValueError, "column 2", {"cov_func": pm.gp.cov.ExpQuad(3, ls=1.0)}),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls_are_refused(case):
    kind, message, options = WRONG[case]
    with pytest.raises(kind, match=message):
        sgp.suggest(**({"X": GOOD[0], "y": GOOD[1]} | options))


def test_random_hyperparameters_need_a_model():
    with pm.Model():
        cov = pm.gp.cov.ExpQuad(2, ls=pm.HalfNormal("ell"))
    with pytest.raises(ValueError, match="in the model context, or give model="):
        sgp.suggest(*GOOD, cov)
