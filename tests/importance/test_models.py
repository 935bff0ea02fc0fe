"""Models that users bring: parameters that leave their range, circles, scales near zero, random results."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions import transforms
from scipy import integrate, stats

import pymc_scalable_gp as sgp
from pymc_scalable_gp.importance import rounds
from pymc_scalable_gp.importance.density import Density, Graphs
from pymc_scalable_gp.importance.mode import Mode, Unbounded, find_mode
from pymc_scalable_gp.importance.nuts import nuts_on_density
from pymc_scalable_gp.importance.rounds import sample

Y = np.array([1.0, -0.5, 0.3, 0.2])
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def run(**options):
    return sgp.sample_importance(**{"progressbar": False, "random_seed": 1} | options)


def sd_that_may_be_negative():
    with pm.Model() as model:
        a = pm.Normal("a", 1.0, 0.5)
        pm.Normal("y", 0.0, a, observed=Y)
    return model


def test_parameters_outside_a_distributions_range_have_no_weight():
    idata = run(model=sd_that_may_be_negative())
    evidence, _ = integrate.quad(
        lambda a: stats.norm.pdf(a, 1, 0.5) * stats.norm.pdf(Y, 0, a).prod(), 1e-9, 6.0
    )
    attrs = idata.posterior.attrs
    assert abs(attrs["log_evidence"] - np.log(evidence)) < 4 * attrs["log_evidence_se"]
    assert (idata.posterior["a"] > 0).all()


@pytest.mark.parametrize("by_ops", [False, True])
def test_such_densities_are_zero_in_each_way_of_compiling(by_ops):
    density = Density(sd_that_may_be_negative())
    graphs = Graphs(density.graphs.theta, density.graphs.logp, density.graphs.smooth, by_ops)
    points = np.array([[-0.5], [0.5]])
    assert np.isneginf(graphs.rows("density", points)[:, 0]).tolist() == [True, False]
    assert np.isneginf(graphs.rows("gradient", points)[:, 0]).tolist() == [True, False]


def test_a_scale_that_underflows_has_no_weight():
    with pm.Model() as model:
        pm.Normal("x", 0.0, pm.HalfCauchy("t", 1.0))
    attrs = run(model=model).posterior.attrs
    assert abs(attrs["log_evidence"]) < 4 * attrs["log_evidence_se"]


CHAIN = transforms.Chain([transforms.Interval(-4.0, 4.0), transforms.circular])


@pytest.mark.parametrize(
    "make",
    [
        lambda: pm.VonMises("angle", 0.0, 5.0),
        lambda: pm.Normal("angle", default_transform=None, transform=CHAIN),
    ],
)
def test_circular_variables_are_refused(make):
    """Each turn that a search of modes reached was counted: log 2 too much evidence by some seeds."""
    with pm.Model() as model:
        make()
    with pytest.raises(ValueError, match="angle: .*circular.*pm.sample"):
        run(model=model)


@pytest.mark.parametrize("prior", [pm.HalfCauchy, pytest.param(pm.HalfNormal, marks=pytest.mark.slow)])
def test_a_density_without_bound_is_refused(prior):
    """The eight schools, centred: as tau goes to zero all effects are the mean, and their density grows."""
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0.0, 5.0), prior("tau", 5.0)
        effect = pm.Normal("effect", mu, tau, shape=8)
        pm.Normal("y", effect, ERRORS, observed=EFFECTS)
    with pytest.raises(ValueError, match="rises without bound.*tau_log__ = -.*non-centred"):
        run(model=model)


@pytest.mark.parametrize(("width", "refused"), [(1e-7, False), (1e-5, True), (None, True), (0.0, True)])
def test_a_mode_beside_the_neck_of_a_funnel(monkeypatch, width, refused):
    """It is taken where it has more mass, by a factor of e^12, than where the search ended in the neck."""
    end, other = (
        Mode(np.zeros(2), 20.0, (1e-7 if width is None else width) * np.eye(2)),
        Mode(np.full(2, 5.0), 0.0, np.eye(2)),
    )
    found = iter([Unbounded("rises without bound", end), None if width is None else other])

    def search(*args, **kwargs):
        result = next(found)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(rounds, "find_mode", search)
    density = SimpleNamespace(from_prior=lambda n, _: np.full((n, 2), 4.0), values=lambda x: x.sum(axis=1))
    with pytest.raises(Unbounded, match="rises") if refused else nullcontext():
        assert rounds.find_modes(density, np.zeros(2), None) == [other]


@pytest.mark.parametrize("effects", [pm.ZeroSumNormal, pm.Normal])
def test_effects_at_an_edge_are_not_taken_for_targets_without_noise_alone(effects):
    """Where steps from the search's end fail, the words were on noise: a scale above .01 was no remedy."""
    with pm.Model() as model:
        effects("effect", sigma=pm.HalfNormal("scale", 1.0), shape=4)
        pm.Normal("y", 0.0, 1.0, observed=0.0)
    with pytest.raises(
        ValueError, match="rises up to where.*scale_log__ = -.*effects.*non-centred.*targets"
    ):
        run(model=model)


def test_strong_correlation_is_not_taken_for_that():
    """A correlation of 1 - 5e-13."""
    root = np.array([[1.0, 0.0], [1.0, 1e-6]])
    inverse = np.linalg.inv(root)
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        pm.Potential("logp", -0.5 * ((inverse @ x) ** 2).sum())
    mode = find_mode(Density(model), np.zeros(2))
    np.testing.assert_allclose(mode.factor @ mode.factor.T, root @ root.T, rtol=0.05)


def test_what_is_random_in_a_result_is_drawn_for_each_draw():
    with pm.Model() as model:
        m = pm.Normal("m")
        pm.Normal("y", m, 1.0, observed=Y)
        pm.Deterministic("new", pm.Normal.dist(m, 1.0, shape=2))
    posterior = run(model=model).posterior
    away = (posterior["new"] - posterior["m"]).to_numpy().reshape(-1, 2)
    np.testing.assert_allclose(away.std(axis=0), 1.0, atol=0.15)
    assert len(np.unique(away)) == away.size
    np.testing.assert_array_equal(run(model=model).posterior["new"], posterior["new"])
    assert not np.array_equal(run(model=model, random_seed=2).posterior["new"], posterior["new"])


def test_a_variable_of_no_size():
    with pm.Model() as model:
        pm.Normal("none", shape=0)
        pm.Normal("z")
    posterior = run(model=model).posterior
    assert posterior["none"].shape == (*posterior["z"].shape, 0)


def test_nuts_goes_on_with_scalars_and_what_depends_on_them():
    with pm.Model() as model:
        m = pm.Normal("m")
        pm.Deterministic("double", 2.0 * m)
        pm.Normal("y", m, 1.0, observed=[1.0, 2.0])
    idata = run(model=model, draws=200, max_evaluations=4, otherwise="nuts")
    np.testing.assert_allclose(idata.posterior["m"].mean(), 1.0, atol=0.2)
    assert idata.posterior["double"].shape == idata.posterior["m"].shape


def test_nuts_goes_on_under_single_precision():
    """The density's parameters are float64, and those of NUTS, as of any model there, are not."""
    with pytensor.config.change_flags(floatX="float32"):
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("m"), 1.0, observed=[1.0, 2.0])
        density, rng = Density(model), np.random.default_rng(1)
        weighed = sample(density, [find_mode(density, density.initial)], 20, rng)
        idata = nuts_on_density(density, weighed, 200, rng, False)
    np.testing.assert_allclose(idata.posterior["m"].mean(), 1.0, atol=0.2)


def scaled_model():
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=2)
        sd = pm.HalfNormal("sd")
        pm.Normal("y", mu, 1.0 + sd, observed=[1.0, 2.0])
    return model


@pytest.mark.parametrize(
    ("point", "sd"),
    [
        ({"sd": 3.0}, 3.0),
        ({"sd_log__": np.log(3.0)}, 3.0),
        ({"sd": 3.0, "sd_log__": 7.0}, 3.0),  # as pm.find_MAP returns both
        ({"mu": [1.0, 2.0]}, 1.0),
    ],
)
def test_a_start_may_hold_transformed_values(point, sd):
    density = Density(scaled_model())
    mu = point.get("mu", np.zeros(2))
    np.testing.assert_allclose(density.start(point), [*mu, np.log(sd)], atol=1e-12)


def test_a_start_is_what_find_map_and_initvals_are():
    """The single draw of ``pm.find_MAP(return_inferencedata=True)``, and variables as keys."""
    model = scaled_model()
    values = {"mu": np.array([1.0, 2.0]), "sd": 3.0}
    draw = {name: np.asarray(value)[None, None] for name, value in values.items()}
    density = Density(model)
    for point in (
        az.from_dict({"posterior": draw}),
        {model[name]: value for name, value in values.items()},
    ):
        np.testing.assert_allclose(density.start(point), [1.0, 2.0, np.log(3.0)], atol=1e-12)
    many = az.from_dict({"posterior": {"sd": np.ones((1, 2))}})
    with pytest.raises(ValueError, match="one value of each variable, got 1 x 2 draws"):
        density.start(many)


def test_a_start_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"start has mu of shape \(\), expected \(2,\)"):
        run(model=scaled_model(), start={"mu": 1.0})
    with pytest.raises(ValueError, match=r"start has sd_log__ of shape \(2,\), expected \(\)"):
        run(model=scaled_model(), start={"sd_log__": [0.0, 0.0]})


def test_prior_draws_that_put_another_variable_out_of_range():
    """NumPy refuses to draw them; the density has no weight there."""
    with pm.Model() as model:
        a = pm.Normal("a", 1.0, 0.5)
        x = pm.Normal("x", 0.0, a)
        pm.Normal("y", x, 1.0, observed=Y)
    idata = run(model=model)

    def density(x, a):
        return stats.norm.pdf(a, 1.0, 0.5) * stats.norm.pdf(x, 0.0, a) * stats.norm.pdf(Y, x, 1.0).prod()

    evidence, _ = integrate.dblquad(density, 1e-6, 4.0, -8.0, 8.0)
    attrs = idata.posterior.attrs
    assert abs(attrs["log_evidence"] - np.log(evidence)) < 4 * attrs["log_evidence_se"]


class Asynchronous:
    asynchronous = True

    def scheduler_info(self):
        """As a client's."""


@pytest.mark.parametrize(("client", "words"), [(4, "got int"), (Asynchronous(), "not asynchronous")])
def test_clients_that_are_none_are_refused(client, words):
    with pytest.raises(TypeError, match=f"client must be a distributed.Client.*{words}"):
        run(model=scaled_model(), client=client)


def test_inputs_with_a_prior_need_no_start():
    rng = np.random.default_rng(0)
    t = np.linspace(0.0, 4.0, 12)
    with pm.Model() as model:
        shift = pm.Normal("shift", 0.0, 0.3)
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), mean_func=lambda X: 2.0 * X[:, 0])
        gp.marginal_likelihood(
            "y", X=(t + shift)[:, None], y=2.0 * t + 0.1 * rng.standard_normal(12), sigma=0.1
        )
    idata = run(model=model)
    assert idata.posterior.attrs["khat"] < 0.7


def test_a_constant_density_has_no_slope():
    with pm.Model() as model:
        pm.Flat("x")
        pm.Potential("logp", pt.constant(2.0))
    value, gradient = Density(model).with_gradients(np.ones((1, 1)))
    np.testing.assert_array_equal([value, gradient[0]], [[2.0], [0.0]])


def along_a_ridge(b):
    return pm.Normal("y", b.sum(), 1.0, observed=[1.0, 2.0])


@pytest.mark.parametrize(
    "data", [lambda b: None, along_a_ridge, lambda b: pm.Bernoulli("y", logit_p=b[0], observed=[1, 1])]
)
def test_an_improper_posterior_is_refused(data):
    with pm.Model() as model:
        data(pm.Flat("b", shape=2))
    with pytest.raises(ValueError, match="does not fall as b goes on"):
        run(model=model)


def test_a_target_without_variance_leaves_no_posterior():
    """Of zeros the noise fell to 1e-162, where its square is no number, and draws there were returned."""
    X = np.random.default_rng(0).uniform(0.0, 3.0, (20, 2))
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=pm.HalfNormal("eta") ** 2 * pm.gp.cov.ExpQuad(2, ls=1.0))
        gp.marginal_likelihood("y", X=X, y=np.zeros(20), sigma=pm.HalfNormal("sigma"))
    with pytest.raises(ValueError, match="rises up to where it cannot .* sigma = 0.01"):
        run(model=model)


@pytest.mark.parametrize("sd", [1e4, 1e10])
def test_a_wide_prior_is_proper(sd):
    with pm.Model() as model:
        pm.Normal("b", 0.0, sd)
    found = run(model=model).posterior
    assert found.attrs["khat"] < 0.5
    assert abs(found["b"].std() / sd - 1.0) < 0.2


def test_variables_that_no_data_depend_on_are_named_where_there_are_too_many():
    X = np.linspace(0.0, 1.0, 8)[:, None]
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(1, ls=pm.InverseGamma("ell", 3, 3)))
        gp.marginal_likelihood("y", X=X, y=X[:, 0], sigma=0.1)
        gp.conditional("f_new", np.linspace(0.0, 1.0, 51)[:, None])
    with pytest.raises(ValueError, match="no data depend on f_new; add what predicts"):
        run(model=model)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("b", shape=51), 1.0, observed=np.zeros(51))
    with pytest.raises(ValueError, match="use pm.sample$"):
        run(model=model)


def test_seconds_that_are_no_number_are_refused():
    with pytest.raises(TypeError, match="max_seconds must be a number"):
        run(model=scaled_model(), max_seconds="a")


def test_results_without_a_posterior_have_no_evidence():
    idata = run(model=scaled_model(), draws=20)
    whole, group = (sgp.compare_evidence({"a": each}) for each in (idata, idata.posterior))
    assert whole.equals(group)
    for other in (idata.sample_stats, None):
        with pytest.raises(ValueError, match="b: no log evidence"):
            sgp.compare_evidence({"b": other})


@pytest.mark.parametrize("start", [[1.0], 5])
def test_a_start_that_is_no_dictionary_is_refused(start):
    with pytest.raises(TypeError, match="start must be a dictionary"):
        run(model=scaled_model(), start=start)


def test_a_legacy_random_state_is_refused():
    with pytest.raises(TypeError, match="random_seed must be an int or a numpy.random.Generator"):
        sgp.sample_importance(random_seed=np.random.RandomState(1), model=scaled_model())


@pytest.mark.parametrize("kind", ["gradient", "density"])
def test_threads_do_not_take_one_anothers_matrices(kind):
    """The gradient of a normal with a covariance makes diagonal matrices, by a function of their own."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        near = np.exp(-0.5 * np.subtract.outer(np.arange(6.0), np.arange(6.0)) ** 2)
        pm.MvNormal("f", np.zeros(6), scale * near + np.eye(6))
    points = np.random.default_rng(0).standard_normal((400, 7))
    graphs = Density(model).graphs
    expected = graphs.rows(kind, points)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            found = list(pool.map(graphs.rows, [kind] * 40, np.split(points, 40)))
            np.testing.assert_array_equal(np.concatenate(found), expected)
