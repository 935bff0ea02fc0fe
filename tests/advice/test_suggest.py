"""Which class and settings for which data: costs by the recorded table, losses by dense algebra."""

import importlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.advice import costs
from pymc_scalable_gp.advice.candidates import Candidate, candidates
from pymc_scalable_gp.advice.costs import cost_of, seconds
from pymc_scalable_gp.advice.facts import count_distinct, find_facts, find_grid
from pymc_scalable_gp.advice.loss import Sample, expected_loss, grid_stretch, profile_noise, take_sample
from pymc_scalable_gp.advice.report import rank, short, verdict
from pymc_scalable_gp.advice.suggest import compare
from pymc_scalable_gp.core.checking.verdict import FASTER_EXACT

GIB = 2.0**30
RNG = np.random.default_rng(0)


def plane(n, d=2):
    X = np.random.default_rng(1).uniform(-1.0, 1.0, (n, d))
    return X, np.sin(3.0 * X[:, 0]) + 0.1 * np.random.default_rng(2).standard_normal(n)


def table(
    X, cov, y=None, *, is_free=True, is_normal=True, minutes=60.0, memory=8.0, grid=None, has_modes=True
):
    """What `suggest` gives."""
    facts = replace(find_facts(X, grid, cov, is_free, is_normal), has_modes=has_modes)
    sample = take_sample(X, y, cov, None, None, facts.is_dear, 0)
    return compare(facts, sample, minutes, memory * GIB)


def sample_of(X, cov, noise=0.01):
    return Sample(X, X, cov, None, None, noise)


def dense(cov, X, Z=None):
    return cov(X).eval() if Z is None else cov(X, Z).eval()


def divergence(A, S):
    """Of N(0, A) from N(0, S), in nats per thousand rows."""
    p, logdet = len(A), np.linalg.slogdet
    nats = 0.5 * (np.trace(np.linalg.solve(A, S)) - p + logdet(A)[1] - logdet(S)[1])
    return 1000.0 / p * nats


# -- what comes first -------------------------------------------------------------------------------------


def test_a_frozen_basis_ranks_as_if_it_lost_much():
    row = {"loss": 20.0, "minutes": 1.0, "memory": 1.0, "class_name": "GriefGP", "missed": 0.1}
    row["settings"] = {"rank": 9}
    frozen = row | {"settings": {"basis": "frozen"}, "loss": 0.0}
    unknown, exact = row | {"loss": np.nan}, row | {"class_name": "ExactMarginal", "loss": 0.0}
    over = row | {"minutes": 5.5, "loss": 0.0}
    close = row | {"loss": 1e-4, "minutes": 2.0}  # .1 nats over all rows: none
    rows = [over, unknown | {"minutes": 3.0}, frozen, row, close, row | {"loss": 0.0}, exact]
    found = [rank(row, 1000, 5.0, 2.0) for row in rows]
    order = sorted(range(7), key=lambda i: found[i]["place"])
    assert order == [6, 5, 4, 3, 2, 1, 0]
    assert [each["ranked"] for each in found] == [0.0, 100.0, 100.0, 20.0, 0.0, 0.0, 0.0]
    assert [each["why"] for each in found] == [
        "1.1 times the minutes", "not known: gp.check tells", "0 at its reference alone",
        "10% of variance unexplained", "below 1 nat on all rows", "below 1 nat on all rows", "exact",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [(-1.2e-10, "<0.01"), (0.0, "0"), (3e-5, "<0.01"), (2.14, "2.1"), (1234.5, "1,234"), (np.nan, "-")],
)
def test_figures_are_short_and_a_loss_that_is_rounding_has_no_digits(value, text):
    assert short(value) == text
    row = {"loss": value, "candidate": "ExactMarginal()", "fits": True}
    known = f"{text} nats per thousand rows" if np.isfinite(value) else "not known"
    assert f"Its loss is {known}" in verdict([row], 1.0, 1.0)


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


def test_a_series_with_a_markov_kernel_takes_the_state_space_form():
    X = np.random.default_rng(0).uniform(0.0, 100.0, (40_000, 1))
    cov = pm.gp.cov.Matern32(1, ls=1.0) * pm.gp.cov.Cosine(1, ls=2.0) + pm.gp.cov.Linear(1, c=0.0)
    facts = find_facts(X, None, cov, True, True)
    assert facts.states == 5
    assert "Markov with 5 states" in facts.in_words()
    found = candidates(facts)[0]
    assert found.call() == "StateSpaceMarginal()"
    assert expected_loss(found, sample_of(X[:50], cov), facts).loss == 0.0
    slow, fast = (cost_of(c.class_name, c.settings, facts) for c in candidates(facts)[1::-1])
    assert fast.operations < slow.operations
    for other, columns in ((pm.gp.cov.ExpQuad(1, ls=1.0), 1), (pm.gp.cov.Matern32(2, ls=1.0), 2)):
        assert find_facts(np.tile(X[:9], columns), None, other, True, True).states is None


def test_code_for_a_grid_says_how_to_make_it():
    axis = np.arange(40.0)
    X = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    facts = find_facts(X, None, pm.gp.cov.ExpQuad(2, ls=3.0), True, True)
    assert facts.grid.shape == (40, 40)
    assert facts.suits_grids
    (kmcg,) = (c for c in candidates(facts) if c.class_name == "KMCGMarginal")
    assert "RegularGrid.from_points(X)" in kmcg.code()


def test_a_complete_grid_is_exact_and_one_with_a_gap_is_not():
    axis, cov = np.arange(12.0), pm.gp.cov.ExpQuad(2, ls=3.0)
    X = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    found = []
    for rows in (X, X[1:]):
        facts = find_facts(rows, None, cov, True, True)
        kmcg = [c for c in candidates(facts) if c.class_name == "KMCGMarginal"]
        loss = expected_loss(kmcg[0], sample_of(rows, cov, 0.05), facts).loss
        found.append((len(kmcg), loss, cost_of("KMCGMarginal", kmcg[0].settings, facts).operations))
    (one, none, few), (several, some, many) = found
    assert (one, none, several) == (1, 0.0, 2)
    assert some > 1.0
    assert 5.0 * few < many


@pytest.mark.filterwarnings("ignore:the features do not explain")
def test_counts_on_a_grid_take_features_of_all_its_axes():
    cov = 1.5 * pm.gp.cov.ExpQuad(2, ls=[1.5, 1.0])
    grid = sgp.RegularGrid([np.arange(15.0), np.arange(16.0)], np.arange(240).reshape(15, 16) > 2)
    facts = find_facts(grid.points, grid, cov, True, False)
    found = [c for c in candidates(facts) if c.class_name == "KMCGMarginal"]
    assert [(c.settings, c.by_mode) for c in found] == [({"n_iter": 200}, True)]
    with pm.Model():
        gp = sgp.KMCGMarginal(cov_func=cov, n_iter=20)
        gp.marginal_likelihood(
            "y", X=grid, y=np.ones(237), likelihood=lambda f: pm.Poisson.dist(mu=pm.math.exp(f))
        )
    X = grid.points[::5]  # of which no basis is made
    phi = gp.training.predictive.prediction_map().features(pt.constant(X)).eval()
    A = phi @ phi.T + np.diag(1.5 - (phi**2).sum(axis=1) + 0.1)
    sample, few = sample_of(X, cov, 0.1), replace(found[0], settings={"n_iter": 20})
    loss = expected_loss(few, sample, facts)
    exact = divergence(A, dense(cov, X) + 0.1 * np.eye(len(X)))
    assert loss.loss == pytest.approx(exact, rel=1e-5)  # pm.gp's own distances are off by 1e-6
    assert loss.missed == pytest.approx(1.0 - (phi**2).sum() / (1.5 * len(X)))
    assert expected_loss(found[0], sample, facts).loss < 0.2 * loss.loss

    as_grief, by_kmcg = (
        seconds(name, cost_of(name, settings, facts, True))
        for name, settings in (("GriefGP", {"rank": 20}), ("KMCGMarginal", {"n_iter": 20}))
    )
    assert by_kmcg == pytest.approx(as_grief)


def test_a_fixed_kernel_is_summarised_at_a_cost_that_does_not_depend_on_rows():
    X, _ = plane(2000, 2)
    facts = find_facts(X, None, pm.gp.cov.ExpQuad(2, ls=1.0), None, True)
    assert not facts.is_free
    operations = {}
    for n in (2000, 1_000_000):
        many = replace(facts, n=n, distinct=n)
        operations[n] = {
            c.call(): cost_of(c.class_name, c.settings, many).operations
            for c in candidates(many)
            if c.class_name == "GriefGP"
        }
    assert operations[2000] == operations[1_000_000]
    assert len(operations[2000]) == 3


def test_categories_take_inducing_points_among_the_rows():
    X = np.random.default_rng(0).integers(0, 4, (200, 6)).astype(float)
    found = table(X, sgp.cov.Hamming(6, ls=1.0), memory=4.0)
    names = set(found.class_name.values)
    assert "CholQRMarginal" in names
    assert not names & {"GriefGP", "SKIPMarginal", "KMCGMarginal", "SoftKIMarginal"}


@pytest.mark.slow
def test_other_likelihoods_take_latent_classes_too():
    X, _ = plane(6000, 4)
    options = {"is_normal": False, "minutes": 1e4}
    latent = {"GriefGP", "SKIPLatent", "SoftKILatent", "VecchiaLatent"}
    found = table(X, pm.gp.cov.ExpQuad(4, ls=1.0), has_modes=False, **options)
    assert set(found.class_name.values) == latent
    found = table(X, pm.gp.cov.ExpQuad(4, ls=1.0), **options)
    assert set(found.class_name.values) == latent | {
        "ExactMarginal", "VecchiaMarginal", "SKIPMarginal"
    }  # fmt: skip
    assert not any({"rotate", "basis"} & set(each) for each in found.settings.values)


def test_modes_cost_what_gradients_cost_many_times_over():
    X, _ = plane(2000, 2)
    facts = find_facts(X, None, pm.gp.cov.ExpQuad(2, ls=1.0), True, False)
    settings = {"n_inducing": 100, "neighbors": 30, "block": 16}
    once = cost_of("VecchiaMarginal", settings, replace(facts, is_normal=True)).operations
    assert cost_of("VecchiaMarginal", settings, facts, True).operations == pytest.approx(2.4 * once)
    fixed = replace(facts, is_free=False)  # nothing is summarised
    pair = [cost_of("CholQRMarginal", {"n_inducing": 50}, fixed, m).operations for m in (0, 1)]
    assert pair[1] > 100.0 * pair[0]


def test_only_other_has_no_mode():
    X, _ = plane(40, 2)
    cov = pm.gp.cov.Matern52(2, ls=1.0)
    names = [
        set(sgp.suggest(X, cov_func=cov, likelihood=kind).class_name.values)
        for kind in ("poisson", "other")
    ]
    assert "ExactMarginal" in names[0]
    assert names[1] == {"VecchiaLatent"}


@pytest.mark.parametrize("is_normal", [True, False])
def test_neighbours_alone_are_for_gaussian_noise(is_normal):
    """Where targets say little, as low counts, modes of the function are not found by neighbours alone."""
    facts = find_facts(plane(500)[0], None, pm.gp.cov.ExpQuad(2, ls=1.0), True, is_normal)
    found = [c for c in candidates(facts) if c.class_name == "VecchiaMarginal"]
    points = {c.settings["n_inducing"] for c in found}
    assert points == ({0, 100, 200} if is_normal else {100, 200})


@pytest.mark.parametrize("likelihood", ["normal", "poisson"])
def test_few_rows_are_exact_first(likelihood):
    X, y = plane(FASTER_EXACT - 1)
    facts = facts_of(len(X))
    exact, near = (cost_of(f"{kind}Marginal", {}, facts) for kind in ("Exact", "Vecchia"))
    pair = [costs.seconds(f"{n}Marginal", c)[0] for n, c in (("Exact", exact), ("Vecchia", near))]
    assert pair[0] < pair[1]
    found = sgp.suggest(X, y, pm.gp.cov.Matern52(2, ls=0.5), likelihood)
    assert found.class_name.values[0] == "ExactMarginal"
    assert f"Below {FASTER_EXACT} rows the" in found.attrs["notes"]


def test_groups_and_the_globe_take_classes_with_distances():
    X = np.column_stack([RNG.uniform(-60.0, 60.0, 150), RNG.integers(0, 4, 150)])
    for cov in (
        sgp.cov.PerGroup(pm.gp.cov.Matern52, 2, ls=9.0, group_dim=1),
        sgp.cov.GreatCircle(pm.gp.cov.Exponential, ls=2000.0),
    ):
        found = table(X, cov)
        assert found.class_name.values[0] == "ExactMarginal"
        assert "VecchiaMarginal" in found.class_name.values
        assert not {"GriefGP", "SKIPMarginal", "KMCGMarginal"} & set(found.class_name.values)


def test_few_rows_have_a_latent_class_too():
    X, _ = plane(20, 2)
    found = table(X, pm.gp.cov.Matern52(2, ls=1.0), is_normal=False, minutes=1e4, has_modes=False)
    assert set(found.class_name.values) == {"VecchiaLatent"}


# -- budgets ----------------------------------------------------------------------------------------------


def test_a_budget_that_nothing_meets_names_the_nearest():
    X, y = plane(500, 2)
    found = table(X, pm.gp.cov.ExpQuad(2, ls=1.0), y, minutes=0.5)
    assert not found.fits.any()
    nearest = found.candidate.values[found.minutes.values.argmin()]
    assert found.candidate.values[0] == nearest
    factor = float(found.minutes[0]) / 0.5
    assert f"Nothing meets 0.5 minutes and 8 GiB: the nearest is {nearest}" in found.attrs["verdict"]
    assert f"{factor:.3g} times the minutes" in found.attrs["verdict"]
    assert "times the memory" not in found.attrs["verdict"]


def test_a_memory_that_nothing_meets_is_named():
    X, y = plane(500, 2)
    found = table(X, pm.gp.cov.Matern32(2, ls=1.0), y, memory=0.1)
    assert "times the memory" in found.attrs["verdict"]


def test_those_within_the_budget_come_first_by_loss():
    X, y = plane(3000, 4)
    found = table(X, pm.gp.cov.ExpQuad(4, ls=0.4), y, minutes=2.0)
    fits, loss = found.fits.values, found.loss.values
    assert fits.any()
    assert not fits.all()
    assert (np.diff(fits.astype(int)) <= 0).all()
    inside = loss[fits & np.isfinite(loss)]
    assert (np.diff(inside[inside * 3.0 > 1.0]) >= 0.0).all()
    assert (np.diff(found.ranked.values[fits]) >= 0.0).all()
    over = [float(why.split()[0]) for why in found.why.values[~fits]]
    assert 1.0 < over[0] == min(over)
    assert over == sorted(over)


def test_a_posterior_of_few_parameters_takes_weights():
    """Two thousand rows exactly: minutes, not hours; with a lengthscale for each of sixty inputs NUTS."""
    few, many = (facts_of(2000, d) for d in (8, 60))
    exact = [next(c for c in candidates(f) if c.class_name == "ExactMarginal") for f in (few, many)]
    assert [c.gradients for c in exact] == [300, 21_000]
    latent = candidates(replace(few, is_normal=False, has_modes=False))
    assert min(c.gradients for c in latent) == 43_400


# -- costs ------------------------------------------------------------------------------------------------


def facts_of(n, d=2, **changed):
    known = find_facts(plane(10, d)[0], None, pm.gp.cov.ExpQuad(d, ls=1.0), True, True)
    return replace(known, n=n, distinct=n, **changed)


def test_seconds_are_those_of_the_recorded_table(monkeypatch):
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(root / "tests" / "benchmarks")
    bench = importlib.import_module("bench_classes")
    text = (root / "docs" / "benchmarks" / "classes.txt").read_text(encoding="utf-8")
    ratios = []
    for line in text.splitlines():
        label, *figures = re.split(r"\s{2,}", line.strip())
        if label in bench.CLASSES and label != "pm.gp.Marginal" and int(figures[0]) < 100_000:
            n, _, measured = (float(figure) for figure in figures[:3])
            name, count = bench.CLASSES[label][0], bench.operations(label, int(n))
            ratios.append(measured / (costs.RATES[name] * count + costs.OVERHEAD))
    assert len(ratios) > 20
    assert 0.7 < min(ratios) <= max(ratios) < 1.5


def test_a_cost_is_a_rate_times_operations_with_what_every_run_takes():
    cost = costs.Cost(3e9, 0.0, 5e9)
    rate = costs.RATES["GriefGP"]
    gradient, once = costs.seconds("GriefGP", cost)
    assert gradient == pytest.approx(3.0 * rate, rel=1e-3)
    assert gradient > 3.0 * rate
    assert once == pytest.approx(90.0 + 5.0 * rate)


def test_chains_side_by_side_hold_a_copy_each():
    facts = facts_of(1000)
    one, four = (costs.held(costs.Cost(0.0, 1e6), facts, chains, False) for chains in (1, 4))
    assert four == 4.0 * one
    assert one == pytest.approx(0.6 * GIB + 8.0 * (1e6 + 6000.0))


def test_blocks_that_all_steps_to_the_mode_share_are_memory():
    cov = pm.gp.cov.Matern52(2, ls=1.0)
    facts = find_facts(plane(500, 2)[0], None, cov, True, False)
    settings = {"n_inducing": 50, "neighbors": 15, "block": 8}
    held_by = [cost_of("VecchiaMarginal", settings, facts, by_mode) for by_mode in (False, True)]
    assert held_by[1].numbers - held_by[0].numbers == 500 * 23**2 / 8
    assert held_by[1].operations > held_by[0].operations


def test_threads_share_the_process_and_the_data():
    facts = facts_of(1000)
    one, four = (costs.held(costs.Cost(0.0, 1e6), facts, cores, True) for cores in (1, 4))
    assert one == costs.held(costs.Cost(0.0, 1e6), facts, 1, False)
    assert four - one == pytest.approx(3.0 * 8e6)


def test_what_importance_sampling_takes_runs_in_threads(monkeypatch):
    """Under Gaussian noise; NUTS of the coefficients of eigenfunctions runs in processes."""
    asked, suggest = {}, importlib.import_module("pymc_scalable_gp.advice.suggest")
    own = suggest.held

    def held(cost, facts, cores, in_threads):
        asked.setdefault(in_threads, []).append(cost)
        return own(cost, facts, cores, in_threads)

    monkeypatch.setattr(suggest, "held", held)
    found = table(plane(300)[0], pm.gp.cov.ExpQuad(2, ls=1.0), is_free=False)
    by_nuts = ["rotate" in label for label in found["label"].values]
    assert len(asked[False]) == sum(by_nuts) > 0
    assert len(asked[True]) == len(by_nuts) - sum(by_nuts) > 0


def test_steps_and_probes_of_products_cost_in_proportion():
    facts = facts_of(900, 2, grid=sgp.RegularGrid([np.arange(30.0)] * 2))
    few = cost_of("KMCGMarginal", {"n_iter": 20, "probes": 4}, facts).operations
    more = cost_of("KMCGMarginal", {"n_iter": 20, "probes": 9}, facts).operations
    assert more == 2.0 * few  # the targets' own steps beside those of the probes
    assert cost_of("KMCGMarginal", {"n_iter": 40, "probes": 4}, facts).operations > 2.0 * few


def test_long_even_axes_are_transformed():
    even, uneven = np.arange(10_000.0), np.geomspace(1.0, 2.0, 10_000)
    found = [
        cost_of("KMCGMarginal", {"n_iter": 20}, facts_of(10_000, 1, grid=sgp.RegularGrid([axis])))
        for axis in (even, uneven, even[:256])
    ]
    assert found[0].operations < 0.7 * found[1].operations
    short = 2.0 * 9 * 20 * (2.0 * 256**2 + 4.0 * 10_000 * 20 + 800.0 * 256)
    assert found[2].operations == short  # a dense factor is faster there


def test_a_search_for_inducing_points_comes_once():
    small, large = (cost_of("CholQRMarginal", {"n_inducing": m}, facts_of(10_000)) for m in (50, 150))
    assert small.once == 10_000 * 50 * (160.0 * 50 + 128.0 * costs.ENTRY)
    assert large.once > 3.0 * small.once
    strings = cost_of("CholQRMarginal", {"n_inducing": 50}, facts_of(10_000, is_dear=True))
    assert strings.once > 100.0 * small.once
    # A minute and more: it is part of the minutes of the table.
    assert costs.seconds("CholQRMarginal", strings)[1] > costs.COMPILATION + 60.0


def test_what_is_summarised_or_fixed_costs_less():
    free, fixed = facts_of(10_000), facts_of(10_000, is_free=False)
    pair = [cost_of("CholQRMarginal", {"n_inducing": 50}, f).operations for f in (free, fixed)]
    assert pair[1] < 0.01 * pair[0]
    pair = [replace(f, is_normal=False) for f in (free, fixed)]
    pair = [cost_of("SKIPLatent", {"rank": 10}, f).operations for f in pair]
    assert pair[1] < 0.5 * pair[0]
    latent = replace(free, is_normal=False)
    settings = {"rank": 100}
    found = [cost_of("GriefGP", settings, f).operations for f in (free, latent)]
    assert found[1] < found[0]
    training = [cost_of("SoftKIMarginal", {"inducing": 256}, facts_of(n)).once for n in (1, 1000)]
    assert training[1] == 1000.0 * training[0] > 0.0


# -- losses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "treatment"), [({}, "FITC"), ({"basis": "frozen"}, "DTC"), ({"rotate": True}, "DTC")]
)
def test_the_loss_of_few_eigenfunctions_is_that_of_the_class(settings, treatment):
    X, _ = plane(80)
    cov = 2.0 * pm.gp.cov.ExpQuad(2, ls=0.5)
    gp = sgp.GriefGP(cov_func=cov, rank=4)
    gp.build(X)
    phi = gp.features(X).eval()
    A = phi @ phi.T + 0.1 * np.eye(80)
    A += (treatment == "FITC") * np.diag(2.0 - (phi**2).sum(axis=1))
    candidate = Candidate("GriefGP", {"rank": 4, **settings})
    found = expected_loss(candidate, sample_of(X, cov, 0.1), None)
    assert found.loss == pytest.approx(divergence(A, dense(cov, X) + 0.1 * np.eye(80)), rel=1e-9)
    assert found.loss > 10.0
    assert found.missed == pytest.approx(1.0 - (phi**2).sum() / 160.0)


def test_the_rank_of_a_frozen_basis_counts():
    X, _ = plane(80)
    sample = sample_of(X, pm.gp.cov.ExpQuad(2, ls=0.5), 0.1)
    losses = [
        expected_loss(
            Candidate("GriefGP", {"rank": rank, "basis": "frozen"}), sample, None).loss
        for rank in (4, 12, 40)
    ]  # fmt: skip
    assert losses[0] > 3.0 * losses[1] > 9.0 * losses[2] > 0.0


@pytest.mark.parametrize("treatment", ["VFE", "DTC"])
def test_the_loss_of_inducing_points_is_that_of_the_class_and_falls_with_their_number(treatment):
    X, _ = plane(120)
    cov = pm.gp.cov.ExpQuad(2, ls=0.4)
    losses = []
    for m in (5, 20, 80):
        settings = {"n_inducing": m} | ({"approx": "DTC"} if treatment == "DTC" else {})
        candidate = Candidate("CholQRMarginal", settings)
        losses.append(expected_loss(candidate, sample_of(X, cov, 0.01), None).loss)
    assert losses[0] > 10.0 * losses[1] > 100.0 * losses[2] > 0.0
    gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=5)
    gp.build(X)
    phi = gp.features(X).eval()
    exact = divergence(phi @ phi.T + 0.01 * np.eye(120), dense(cov, X) + 0.01 * np.eye(120))
    if treatment == "VFE":  # the bound loses what is missed over twice the noise too
        exact += 1000.0 / 120.0 * 0.5 * (120.0 - (phi**2).sum()) / 0.01
    assert losses[0] == pytest.approx(exact, rel=1e-6)


def test_latent_classes_lose_what_their_features_do():
    X, _ = plane(70)
    sample = sample_of(X, pm.gp.cov.ExpQuad(2, ls=0.5), 0.05)

    def nats(name, settings):
        return expected_loss(Candidate(name, settings, by_prior=True), sample, None).loss

    points = nats("VecchiaLatent", {"n_inducing": 10, "neighbors": None})
    assert points == nats("CholQRMarginal", {"n_inducing": 10})
    near = {"n_inducing": 10, "neighbors": 8, "block": 4}
    assert nats("VecchiaLatent", near) == nats("VecchiaMarginal", near) < 0.1 * points
    assert nats("SKIPLatent", {"rank": 3}) == nats("SKIPMarginal", {"rank": 3}) > 0.0


def test_neighbours_are_those_of_the_class():
    X, _ = plane(90)
    cov = pm.gp.cov.Matern32(2, ls=0.5)
    settings = {"n_inducing": 0, "neighbors": 6, "block": 4}
    S = dense(cov, X) + 0.09 * np.eye(90)
    nats = expected_loss(Candidate("VecchiaMarginal", settings), sample_of(X, cov, 0.09), None).loss
    # On average over many targets of the exact GP, log densities differ by that.
    targets = multivariate_normal(np.zeros(90), S).rvs(200, random_state=1)
    with pm.Model() as model:
        gp = sgp.VecchiaMarginal(cov_func=cov, **settings)
        y = gp.marginal_likelihood("y", X=X, y=targets[0], sigma=0.3)
    value = pt.vector("value")
    logp = model.compile_fn(pm.logp(y, value), inputs=[value], point_fn=False)
    lost = multivariate_normal(np.zeros(90), S).logpdf(targets) - [float(logp(e)) for e in targets]
    error = lost.std() / np.sqrt(200)
    assert 90.0 / 1000.0 * nats == pytest.approx(lost.mean(), abs=3.0 * error)
    assert error < 0.2 * lost.mean()


def test_all_neighbours_lose_nothing():
    X, _ = plane(70)
    sample = sample_of(X, pm.gp.cov.Matern52(2, ls=0.4), 0.01)

    def nats(k):
        settings = {"n_inducing": 0, "neighbors": k, "block": 8}
        return expected_loss(Candidate("VecchiaMarginal", settings), sample, None).loss

    assert abs(nats(70)) < 1e-6
    assert nats(4) > 1.0


def test_a_residual_that_is_singular_is_not_known():
    X, _ = plane(60)
    sample = sample_of(np.repeat(X[:30], 2, axis=0), pm.gp.cov.ExpQuad(2, ls=5.0), 1e-30)
    settings = {"n_inducing": 0, "neighbors": 20, "block": 4}
    assert np.isnan(expected_loss(Candidate("VecchiaMarginal", settings), sample, None).loss)


def test_more_steps_and_probes_lose_less():
    X, cov = np.arange(150.0)[:, None], pm.gp.cov.Matern32(1, ls=4.0)
    facts = facts_of(10_000, 1, grid=sgp.RegularGrid.from_points(X)[0])
    sample = sample_of(X, cov, 0.05)

    def loss(steps, probes):
        kmcg = Candidate("KMCGMarginal", {"n_iter": steps, "probes": probes})
        return expected_loss(kmcg, sample, facts).loss

    few, many = loss(3, 4), loss(100, 4)
    assert few > loss(12, 4) + 1.0 > many + 1.0
    assert many == pytest.approx(2.0 * loss(100, 16), rel=0.01)
    # After so many steps only the determinant is off, by the standard error of its estimate, which 16
    # probes tell to 18%.
    values, vectors = np.linalg.eigh(dense(cov, X) + 0.05 * np.eye(150))
    log = (vectors * np.log(values)) @ vectors.T
    error = np.sqrt(2.0 / 4.0 * (np.square(log).sum() - np.square(np.diag(log)).sum()))
    assert many == pytest.approx(500.0 * error / np.sqrt(150 * 10_000), rel=0.2)


def test_the_noise_is_that_of_the_targets():
    X, _ = plane(400)
    K = dense(pm.gp.cov.ExpQuad(2, ls=0.5), X)
    noisy = np.random.default_rng(5).multivariate_normal(np.zeros(400), K + 0.25 * np.eye(400))
    _, noise, scale = profile_noise(K, noisy, 1.0)
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
    assert cells.n == 30
    assert (np.diff(np.unique(cells.points[:, 0])) == 1.0).all()


# -- the public function ----------------------------------------------------------------------------------


def test_it_prints_a_table_a_verdict_and_code():
    X, y = plane(200)
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 0.0, 0.5)
        found = sgp.suggest(X, y, pm.gp.cov.ExpQuad(2, ls=ell), minutes=1000.0, memory=64.0)
    text = str(found)
    assert text.splitlines()[0].split() == ["class", "fits", "minutes", "loss", "why"]
    assert max(map(len, text.splitlines())) <= 80
    assert len(found.to_dataframe().columns) == 11
    assert "at the initial point of the model" in text.replace("\n", " ")
    assert found.attrs["code"].startswith("gp = sgp.")
    assert found.attrs["code"] in text
    assert [v.name for v in model.basic_RVs] == ["ell"]  # nothing was added
    chosen = getattr(sgp, str(found.class_name.values[0]))
    chosen(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), **found.settings.values[0])


def test_without_a_kernel_it_says_which_it_took_and_the_seed_decides(monkeypatch):
    X, y = plane(150)
    told = []

    def watched(items, label, total, progressbar):
        told.append((label, len(items) == total, progressbar))
        return items

    monkeypatch.setattr("pymc_scalable_gp.advice.suggest.with_progress", watched)
    first = sgp.suggest(X, y, minutes=1000.0, memory=64.0)
    second = sgp.suggest(X, y, minutes=1000.0, memory=64.0, progressbar=False)
    assert told == [("Comparing classes", True, shown) for shown in (True, False)]
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
    cov = pm.gp.cov.ExpQuad(3, ls=0.1, active_dims=[0, 2])
    found = table(X, cov, y, minutes=1e4)
    assert found.attrs["facts"].startswith("300 rows of 2 inputs")
    alone = table(X[:, [0, 2]], pm.gp.cov.ExpQuad(2, ls=0.1), y, minutes=1e4)
    pair = [float(each.loss.sel(candidate="SKIPMarginal(rank=10)")) for each in (found, alone)]
    assert pair[0] == pytest.approx(pair[1], rel=1e-6)
    assert pair[0] > 0.01


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
    twice = np.concatenate([X, X])
    found = sgp.suggest(twice, np.concatenate([y, y]), minutes=1e3, memory=64.0)
    assert "150 rows repeat the inputs of others" in found.attrs["notes"]
    assert "pm.Potential('spread', -150 * pm.math.log(sigma) - S / (2 * sigma**2))" in found.attrs["notes"]
    counts = sgp.suggest(twice, np.round(y**2).repeat(2), likelihood="poisson", minutes=1e3, memory=64.0)
    assert "150 of them distinct" in counts.attrs["facts"]
    assert "repeat" not in counts.attrs["notes"]


@pytest.mark.parametrize("kernel", [pm.gp.cov.ExpQuad, pm.gp.cov.Matern52])
def test_many_rows_of_few_distinct_ones_have_features_for_each(kernel):
    """A factor design, with too many rows for the exact class: as many features are exact."""
    X = np.random.default_rng(0).integers(0, 3, (20_001, 3)).astype(float)
    with pm.Model():
        cov = kernel(3, ls=pm.LogNormal("ell", 0.0, 1.0))
        found = sgp.suggest(X, cov_func=cov, minutes=1e3, memory=64.0, random_seed=1)
    exact = found.label.values[found.ranked.values == 0.0]
    both = ["CholQRMarginal 27", "GriefGP 27"]
    np.testing.assert_array_equal(sorted(exact), both if kernel is pm.gp.cov.ExpQuad else both[:1])


def test_features_for_each_distinct_row_where_half_the_rows_repeat_others():
    facts = [replace(facts_of(n), distinct=m) for n, m in ((400, 200), (402, 201), (399, 200))]
    listed = [[c.settings for c in candidates(each) if c.class_name == "CholQRMarginal"] for each in facts]
    assert listed == [[{"n_inducing": 200}], [], []]


def test_means_of_repeated_rows_with_their_spread_are_as_good_as_the_rows():
    """What is advised: the densities differ by a constant; without the spread they do not."""
    X, _ = plane(8)
    times = np.array([1, 1, 2, 2, 3, 3, 4, 5])
    rng = np.random.default_rng(0)
    groups = [rng.standard_normal() + rng.standard_normal(count) for count in times]
    means, S = [y.mean() for y in groups], sum(((y - y.mean()) ** 2).sum() for y in groups)
    cov, more, found = pm.gp.cov.ExpQuad(2, ls=1.0), times.sum() - 8, []
    for spread in (None, False, True):
        with pm.Model() as model:
            sigma = pm.HalfNormal("sigma")
            gp = sgp.ExactMarginal(cov_func=cov)
            if spread is None:
                gp.marginal_likelihood("y", X.repeat(times, axis=0), np.concatenate(groups), sigma)
            else:
                gp.marginal_likelihood("y", X, means, sigma / np.sqrt(times))
            if spread:
                pm.Potential("spread", -more * pm.math.log(sigma) - S / (2 * sigma**2))
        logp = model.compile_logp(mode="FAST_COMPILE")
        found.append([logp({"sigma_log__": np.log(value)}) for value in (0.5, 1.5)])
    rows, alone, both = (np.diff(values) for values in found)
    np.testing.assert_allclose(both, rows, rtol=1e-9)
    assert abs(alone - rows) > 1.0


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


def test_the_chart_of_the_docs_has_what_it_answers(monkeypatch):
    docs = Path(__file__).parents[2] / "docs"
    monkeypatch.syspath_prepend(docs)
    drawings = importlib.import_module("drawings")
    cells = re.findall(
        r"<title>([^<]*), (\d+), (\d+): (\w+)</title>",
        (docs / "_static" / "classes.svg").read_text("utf-8"),
    )
    assert len(cells) == len(drawings.PANELS) * len(drawings.INPUTS) * len(drawings.ROWS)
    found = {(panel, int(d), int(n)): name for panel, d, n, name in cells}
    for panel, d, n in (("Gaussian noise, Matern52", 2, 500), ("Counts, Matern52", 1, 500)):
        assert found[panel, d, n] == drawings.answer(n, d, *drawings.PANELS[panel])[0]


def test_random_hyperparameters_need_a_model():
    with pm.Model():
        cov = pm.gp.cov.ExpQuad(2, ls=pm.HalfNormal("ell"))
    with pytest.raises(ValueError, match="in the model context, or give model="):
        sgp.suggest(*GOOD, cov)


def test_targets_that_are_all_alike_tell_nothing_of_the_noise():
    X, _ = plane(60)
    found, without = (sgp.suggest(X, y, memory=4.0) for y in (np.full(60, 3.0), None))
    assert str(found) == str(without)
    assert np.isfinite(found["loss"].values).all()


def test_rows_without_prior_variance_have_none_that_is_not_explained():
    X = np.vstack([np.full(2, 0.5), plane(60)[0]])
    sample = take_sample(X, None, pm.gp.cov.Linear(2, c=0.5), None, None, False, 0)
    facts = find_facts(X, None, pm.gp.cov.Linear(2, c=0.5), True, True)
    found = expected_loss(Candidate("CholQRMarginal", {"n_inducing": 2}), sample, facts)
    assert found.missed == pytest.approx(0.0, abs=1e-6)
