"""Where importance sampling starts in models of many rows."""

import logging
import pickle

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.fit import start
from pymc_scalable_gp.importance.density import Density
from pymc_scalable_gp.importance.start import Offer, offered_start
from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._by_ops import MachineCode

RNG = np.random.default_rng(3)
X = RNG.uniform(0.0, 6.0, (80, 2))  # the function goes along the first column alone
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(80)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    monkeypatch.setattr(start, "FEWEST_FOR_SUBSET", 80)


def model_of(built=False, fixed=False, rows=80, offset=False):
    with pm.Model() as model:
        ell = 0.5 if fixed else pm.LogNormal("ell", 1.0, 1.0, shape=2)
        sigma = 0.1 if fixed else pm.HalfNormal("sigma", 1.0)
        if offset:
            pm.Normal("unrelated")
        gp = sgp.VecchiaMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), n_inducing=5, neighbors=4)
        if built:
            gp.build(X)
        gp.marginal_likelihood("y", X[:rows], Y[:rows], sigma)
    return model, gp


def test_it_starts_at_the_mode_of_some_rows_and_neighbors_follow(caplog):
    model, gp = model_of()
    before = gp.training.plan.neighbors.get_value().copy()
    with caplog.at_level(logging.INFO, logger="pymc"):
        found = offered_start(Density(model))
    with model:
        expected = sgp.subset_map(gp, X, Y, model["sigma"], random_seed=0, progressbar=False)
    for name in ("ell", "sigma"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-10)
    assert found["ell"][0] < 2.0 < found["ell"][1]  # the initial point has 2.7 for both
    assert any("neighbors are chosen again" in r.message for r in caplog.records)
    after = gp.training.plan.neighbors.get_value().copy()
    assert not np.array_equal(after, before)
    with model:
        gp.rebuild(found)
    np.testing.assert_array_equal(gp.training.plan.neighbors.get_value(), after)


def test_what_the_user_built_stays(caplog):
    model, gp = model_of(built=True)
    before = gp.training.plan.neighbors.get_value().copy()
    with caplog.at_level(logging.INFO, logger="pymc"):
        assert offered_start(Density(model)) is not None
    np.testing.assert_array_equal(gp.training.plan.neighbors.get_value(), before)
    assert not any("chosen again" in r.message for r in caplog.records)


def counts_model(cls=sgp.VecchiaMarginal, built=False, **options):
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 1.0, 1.0, shape=2)
        gp = cls(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), **options)
        if built:
            gp.build(X)
        counts = np.random.default_rng(5).poisson(3.0 * np.exp(Y))
        gp.marginal_likelihood(
            "y", X=X, y=counts, likelihood=lambda f: pm.Poisson.dist(mu=3.0 * pm.math.exp(f))
        )
    return model, gp


@pytest.mark.slow
def test_under_another_likelihood_a_few_steps_lead_there(caplog):
    model, gp = counts_model(n_inducing=5, neighbors=4)
    before, begun = gp.training.inner.plan.neighbors.get_value(), gp.training.start.get_value()
    density = Density(model)
    with caplog.at_level(logging.INFO, logger="pymc"):
        found = offered_start(density)
    assert 0 < density.gradients <= 35
    assert found["ell"][1] > 1.5 * found["ell"][0]  # the initial point has 2.7 for both
    assert any("after a few steps" in r.message for r in caplog.records)
    assert not np.array_equal(gp.training.inner.plan.neighbors.get_value(), before)
    assert not np.array_equal(gp.training.start.get_value(), begun)
    again = offered_start(Density(model))
    np.testing.assert_array_equal(again["ell"], found["ell"])


@pytest.mark.parametrize(("mode", "found"), [("NUMBA", True), ("FAST_COMPILE", False)])
def test_where_the_users_mode_is_python_nothing_is_machine_code(mode, found):
    with pytensor.config.change_flags(mode=mode):
        function = Density(model_of(built=True)[0]).graphs.function("density").compiled
    ops = [node.op for node in function.maker.fgraph.apply_nodes]
    assert any(isinstance(op, MachineCode) for op in ops) == found
    assert found != any(isinstance(op, GufuncOp) for op in ops)


def test_what_has_no_neighbors_or_was_built_starts_at_the_initial_point():
    assert offered_start(Density(counts_model(sgp.ExactMarginal)[0])) is None
    options = {"n_inducing": 5, "neighbors": 4}
    assert offered_start(Density(counts_model(built=True, **options)[0])) is None


def test_with_few_rows_a_few_steps_lead_there(caplog):
    model, gp = model_of(rows=79)
    before = gp.training.plan.neighbors.get_value()
    with caplog.at_level(logging.INFO, logger="pymc"):
        found = offered_start(Density(model))
    assert found["ell"][0] < 2.0 < found["ell"][1]  # the initial point has 2.7 for both
    assert any("after a few steps" in r.message for r in caplog.records)
    after = gp.training.plan.neighbors.get_value()
    assert not np.array_equal(after, before)
    assert gp.reference == found  # what is to be saved, to make the same GP again
    with model:
        gp.rebuild(found)
    np.testing.assert_array_equal(gp.training.plan.neighbors.get_value(), after)


@pytest.mark.parametrize("rows", [79, 80])
def test_neighbors_are_chosen_once_and_what_the_user_rebuilt_stays(rows):
    model, gp = model_of(rows=rows)
    plan = gp.training.plan
    before = plan.neighbors.get_value()
    with model:
        gp.rebuild()  # at no point of the user's
    np.testing.assert_array_equal(plan.neighbors.get_value(), before)
    first = offered_start(Density(model))
    chosen = plan.neighbors.get_value()
    assert not np.array_equal(chosen, before)
    again = offered_start(Density(model))
    assert again.keys() == first.keys() == {"ell", "sigma"}
    for name, value in first.items():
        np.testing.assert_array_equal(again[name], value)
    np.testing.assert_array_equal(plan.neighbors.get_value(), chosen)
    with model:
        gp.rebuild({"ell": [9.0, 0.3], "ell_log__": np.log([9.0, 0.3])})  # as of pm.find_MAP
    rebuilt = plan.neighbors.get_value()
    assert not np.array_equal(rebuilt, chosen)
    assert offered_start(Density(model)) == {"ell": [9.0, 0.3]}
    np.testing.assert_array_equal(plan.neighbors.get_value(), rebuilt)


def test_what_a_rebuild_went_by_is_kept_by_every_class():
    """It was by Vecchia's alone: `reference` gave other neighbours to the rest."""
    point, found = {"ell": np.array([0.3, 9.0])}, []
    for _ in range(2):
        with pm.Model():
            ell = pm.LogNormal("ell", 1.0, 1.0, shape=2)
            gp = sgp.SoftKIMarginal(
                cov_func=pm.gp.cov.ExpQuad(2, ls=ell), inducing=5, approx="VIF", neighbors=4
            )
            gp.marginal_likelihood("y", X, Y, 0.1)
            before = gp.training.plan.neighbors.get_value()
            gp.rebuild(point)
        found.append(gp.training.plan.neighbors.get_value())
        point = gp.reference
    assert not np.array_equal(found[0], before)
    np.testing.assert_array_equal(*found)


def test_a_fixed_matrix_has_no_mode_on_some_rows():
    """The search for it was refused, and importance sampling with it."""
    rows = np.linspace(0.0, 1.0, 1001)[:, None]  # more than the mode is looked for on
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 1.0, 1.0)
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=ell) + np.eye(1001))
        gp.marginal_likelihood("y", rows, rows[:, 0], 0.1)
    assert offered_start(Density(model)) is None


def test_neighbors_stay_where_no_density_is_finite():
    """They were chosen there for good, and later calls began there again."""
    model, gp = model_of(rows=79)
    with model:
        pm.Potential("narrow", pt.switch(model["sigma"] < 0.5, 0.0, -np.inf))  # it begins at 1
    before = gp.training.plan.neighbors.get_value()
    assert offered_start(Density(model)) is None
    np.testing.assert_array_equal(gp.training.plan.neighbors.get_value(), before)
    model.set_initval(model["sigma"], 0.3)
    assert offered_start(Density(model))["sigma"] < 0.5
    assert not np.array_equal(gp.training.plan.neighbors.get_value(), before)


def test_each_of_two_gps_chooses_its_neighbors_again():
    """The second kept those of the initial point."""
    with pm.Model() as model:
        gps = []
        for name in ("a", "b"):
            cov = pm.gp.cov.ExpQuad(2, ls=pm.LogNormal(f"ell_{name}", 1.0, 1.0, shape=2))
            gps.append(sgp.VecchiaMarginal(cov_func=cov, n_inducing=5, neighbors=4))
            gps[-1].marginal_likelihood(f"y_{name}", X[:79], Y[:79], 0.1)
    before = gps[1].training.plan.neighbors.get_value()
    first = offered_start(Density(model))
    assert first.keys() == {"ell_a", "ell_b"}
    chosen = [gp.training.plan.neighbors.get_value() for gp in gps]
    assert not np.array_equal(chosen[1], before)
    again = offered_start(Density(model))
    for name, value in first.items():
        np.testing.assert_array_equal(again[name], value)
    for gp, own in zip(gps, chosen, strict=True):
        np.testing.assert_array_equal(gp.training.plan.neighbors.get_value(), own)


def test_nothing_is_offered_for_built_few_rows_known_hyperparameters_or_copies():
    assert offered_start(Density(model_of(rows=79, built=True)[0])) is None
    for rows in (79, 80):
        assert offered_start(Density(model_of(rows=rows, fixed=True, offset=True)[0])) is None
    model, _ = model_of()
    assert offered_start(Density(model.copy())) is None
    assert pickle.loads(pickle.dumps(Offer(print)))(Density(model)) is None


@pytest.mark.parametrize("kind", ["weights", "a prior on inputs", "statistics"])
def test_what_has_no_mode_on_some_rows_starts_at_the_initial_point(kind, monkeypatch):
    monkeypatch.setattr(start, "FEWEST_FOR_SUBSET", 30)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1.0)
        if kind == "a prior on inputs":
            times = pm.Normal("times", X[:30, 0], 0.1, shape=30)
            gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
            gp.marginal_likelihood("y", times[:, None], Y[:30], sigma)
        else:
            gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), rank=5, grid=6, approx="DTC")
            gp.build(X)
            if kind == "weights":
                gp.marginal_likelihood("y", X, Y, sigma, weights=np.linspace(0.5, 2.0, gp.rank))
            else:
                gp.marginal_likelihood("y", statistics=gp.summarize(X, Y, progressbar=False), sigma=sigma)
    assert offered_start(Density(model)) is None


def test_tasks_start_from_the_mode_of_the_kernel_of_tasks():
    rows = np.column_stack([X, np.arange(80) % 2])
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(3, ls=pm.LogNormal("ell", 1.0, 1.0, shape=2), active_dims=[0, 1])
        B = pm.Normal("B", 0.0, 1.0, shape=(2, 1))
        gp = sgp.SKIPMarginal(cov_func=cov, rank=5, grid_size=20, task_dim=2, task_cov=B)
        gp.marginal_likelihood("y", rows, Y, 0.1)
        found = sgp.subset_map(gp, rows, Y, 0.1, random_seed=0, progressbar=False)
    offered = offered_start(Density(model))
    assert offered.keys() == {"ell", "B"}
    np.testing.assert_allclose(offered["B"], found["B"], rtol=1e-6)


def test_sample_importance_takes_it(caplog):
    model, _ = model_of()
    with caplog.at_level(logging.INFO, logger="pymc"):
        given = sgp.sample_importance(
            20, model=model, start={"ell": [0.5, 5.0]}, random_seed=1, progressbar=False, max_evaluations=60
        )
    assert not any("Starts from" in r.message for r in caplog.records)
    with caplog.at_level(logging.INFO, logger="pymc"):
        sgp.sample_importance(20, model=model, random_seed=1, progressbar=False, max_evaluations=60)
    assert any("Starts from the mode" in r.message for r in caplog.records)
    assert given.posterior["ell"][..., 0].mean() < 3.0


# -- neighbours of a likelihood whose GP nobody built ------------------------------------------------


@pytest.fixture
def enough(monkeypatch):
    monkeypatch.setattr(start, "REFERENCE_ROWS", 40)


@pytest.mark.usefixtures("enough")
def test_neighbors_and_points_go_by_the_mode_on_some_rows(caplog):
    with caplog.at_level(logging.INFO, logger="pymc"):
        _, gp = model_of()
    assert any("mode of the exact GP on 40" in r.message for r in caplog.records)
    assert gp.is_built_unasked
    assert gp.reference["ell"][0] < 2.0 < gp.reference["ell"][1]  # the initial point has 2.7 for both
    with pm.Model():
        ell = pm.LogNormal("ell", 1.0, 1.0, shape=2)
        sigma = pm.HalfNormal("sigma", 1.0)
        asked = sgp.VecchiaMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), n_inducing=5, neighbors=4)
        found = sgp.subset_map(asked, X, Y, sigma, max_rows=40, random_seed=0, progressbar=False)
        asked.build(X, point=found)
        asked.marginal_likelihood("y", X, Y, sigma)
    for name in ("order", "neighbors"):
        own, expected = (getattr(each.training.plan, name).get_value() for each in (gp, asked))
        np.testing.assert_array_equal(own, expected)
    np.testing.assert_array_equal(gp.feature_map.points.get_value(), asked.feature_map.points.get_value())


@pytest.mark.usefixtures("enough")
@pytest.mark.parametrize(
    ("kind", "options", "given"), [(sgp.GriefGP, {"rank": 6}, {}), (sgp.SoftKIMarginal, {}, {"Xu": X[:5]})]
)
def test_neighbors_of_other_classes_go_by_it_too(kind, options, given):
    """Points that are given leave order and neighbours to be found."""
    with pm.Model():
        ell = pm.LogNormal("ell", 1.0, 1.0, shape=2)
        gp = kind(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), approx="VIF", neighbors=4, **options)
        gp.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma", 1.0), **given)
    assert gp.reference["ell"][0] < 2.0 < gp.reference["ell"][1]


@pytest.mark.usefixtures("enough")
@pytest.mark.parametrize("options", [{"built": True}, {"fixed": True}, {"rows": 39}])
def test_what_was_built_or_is_known_and_few_rows_take_no_search(options, monkeypatch):
    monkeypatch.setattr(start, "subset_map", None)
    _, gp = model_of(**options)
    assert gp.reference is None


@pytest.mark.usefixtures("enough")
def test_inputs_with_a_prior_take_no_search(monkeypatch):
    monkeypatch.setattr(start, "subset_map", None)
    with pm.Model():
        gp = sgp.VecchiaMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), n_inducing=5, neighbors=4)
        times = pm.Normal("times", X[:, 0], 0.1, shape=80)
        gp.marginal_likelihood("y", times[:, None], Y, pm.HalfNormal("sigma", 1.0))
    assert gp.reference is None


@pytest.mark.usefixtures("enough")
def test_a_density_that_is_not_finite_is_told(caplog):
    with pm.Model(), caplog.at_level(logging.INFO, logger="pymc"):
        sigma = pm.HalfNormal("sigma", 1.0, initval=1e-200)
        gp = sgp.VecchiaMarginal(cov_func=1e-300 * pm.gp.cov.ExpQuad(2, ls=1.0), n_inducing=5, neighbors=4)
        gp.marginal_likelihood("y", X, Y, sigma)
    assert gp.reference is None
    assert any("initial point, as the exact GP's density" in r.message for r in caplog.records)
