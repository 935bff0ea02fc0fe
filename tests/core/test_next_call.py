"""What users type next: calls outside the model block, second likelihoods, wrong names and arguments."""

import inspect
import pickle

import arviz as az
import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core import observed
from pymc_scalable_gp.utils.compiled import evaluate

RNG = np.random.default_rng(3)
X = RNG.uniform(-1.0, 1.0, (30, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(30)
COV = pm.gp.cov.ExpQuad(2, ls=0.8)
POINT = {"ell": 0.7, "sigma": 0.2}
QUIET = {"progressbar": False}

pytestmark = pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")


def fitted(kind=sgp.ExactMarginal, **options):
    with pm.Model() as model:
        gp = kind(cov_func=pm.gp.cov.ExpQuad(2, ls=pm.LogNormal("ell", 0.0, 0.3)), **options)
        gp.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma"))
    return gp, model


def draws(count=40):
    rng = np.random.default_rng(1)
    shape = (2, count // 2)
    values = {k: v * np.exp(0.05 * rng.standard_normal(shape)) for k, v in POINT.items()}
    return az.from_dict({"posterior": values})


# -- outside the model block --------------------------------------------------------------------


def test_a_gp_remembers_the_model_of_its_likelihood():
    gp, model = fitted()
    idata = draws()
    assert gp.model is model
    for call in (
        lambda **m: gp.predict(X[:3], POINT, diag=True, **m)[0],
        lambda **m: gp.predict_posterior(X[:3], idata, **QUIET, **m)["sd"],
        lambda **m: gp.check(POINT, rows=20, neighbors=None, **QUIET, **m)["logp_exact"],
        lambda **m: gp.loo(idata, **QUIET, **m).elpd_i,
        lambda **m: gp.loo_pit(idata, **QUIET, **m),
    ):
        assert_allclose(call(), call(model=model), rtol=1e-12)


def test_it_remembers_the_model_of_its_prior_and_of_the_sum():
    with pm.Model():
        ell = pm.LogNormal("ell")
        one, two = (sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), grid=5, rank=9) for _ in "ab")
        total = one + two
        total.prior("f", X)
    point = {"ell": 0.7, "f_coeffs": np.ones(total.rank)}
    whole = total.predict(X[:3], point, diag=True)[0]
    parts = [gp.predict(X[:3], point, diag=True, given={"gp": total})[0] for gp in (one, two)]
    assert_allclose(whole, sum(parts), rtol=1e-10)
    with pm.Model() as outer, pm.Model("sub"):
        gp = sgp.ExactMarginal(cov_func=COV)
        gp.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma"))
    assert gp.model is outer
    assert gp.predict(X[:3], {"sub::sigma": 0.2})[0].shape == (3,)


@pytest.mark.parametrize("options", [{}, {"basis": "frozen"}], ids=["free", "frozen"])
def test_a_build_outside_the_model_goes_by_that_of_the_likelihood(options):
    gp, model = fitted(sgp.GriefGP, grid=4, rank=8, **options)
    point = {"ell": 2.0}
    with model:
        gp.build(X, point=point)
    inside = gp.features(X)
    gp.build(X, point=point)
    assert_allclose(*[evaluate([phi], POINT, model)[0] for phi in (gp.features(X), inside)], rtol=1e-12)
    with model:
        first, second = (
            sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=model["ell"]), grid=4, rank=8, **options)
            for _ in range(2)
        )
        total = first + second
        total.marginal_likelihood("sum", X, Y, 0.3)
    assert total.build(X, point=point) == 16


@pytest.mark.parametrize(
    "call",
    [
        lambda gp: gp.build(X),
        lambda gp: gp.build(X, point={"ell": 0.7}),
        lambda gp: gp.check(X=X),
        lambda gp: gp.marginal_likelihood("y", X, Y, 0.3),
        lambda gp: gp.prior("f", X),
        lambda gp: sgp.subset_map(gp, X, Y, 0.3, **QUIET),
        lambda gp: sgp.sample_importance(**QUIET),
    ],
)  # fmt: skip
@pytest.mark.parametrize("basis", ["free", "frozen"])
def test_where_no_model_is_known_the_words_say_so(call, basis):
    with pm.Model():
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=pm.LogNormal("ell")), rank=8, basis=basis)
    with pytest.raises(TypeError, match="no model is known here: call this inside `with model:`"):
        call(gp)


def test_a_copy_of_the_model_is_refused_as_before():
    gp, model = fitted()
    copy = pm.do(model, {"ell": 0.5})
    with copy, pytest.raises(ValueError, match="of another model than this one"):
        gp.predict(X[:3], {"sigma": 0.2})


# -- models within models -----------------------------------------------------------------------


def in_a_part(kind, within, **options):
    """Hyperparameters of a model, and the likelihood in a part of it that has a name, or not."""
    with pm.Model() as model:
        cov = pm.gp.cov.Matern32(2, ls=pm.LogNormal("ell", 0.0, 3.0, initval=0.5))
        sigma = pm.HalfNormal("sigma")
        with pm.Model(name="a") if within else model:
            gp = kind(cov_func=cov, **options)
            gp.marginal_likelihood("y", X, Y, sigma)
    return gp, model


@pytest.mark.parametrize("kind", [sgp.VecchiaMarginal, sgp.CholQRMarginal])
@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
def test_points_in_a_part_of_a_model_go_by_the_hyperparameters_of_the_whole(kind):
    """They went by a draw from the prior, another one each time."""
    points = [in_a_part(kind, within, n_inducing=8)[0].feature_map.points for within in (True, False)]
    assert_array_equal(*(each.eval() for each in points))


def test_a_workflow_in_a_part_of_a_model():
    found = []
    for within in (True, False):
        gp, model = in_a_part(sgp.VecchiaMarginal, within, n_inducing=5, neighbors=6)
        with model:
            idata = sgp.sample_importance(draws=40, random_seed=1, **QUIET)
            with pm.Model(name="b") if within else model as here:
                outputs = [
                    gp.predict(X[:3], POINT, diag=True)[0],
                    gp.predict_posterior(X[:3], idata, model=here, **QUIET)["sd"],
                    gp.check(idata, rows=20, **QUIET).attrs["gap_all"],
                    gp.loo(idata, **QUIET).elpd_i,
                    sgp.subset_map(gp, X, Y, model["sigma"], random_seed=1, **QUIET)["ell"],
                ]
                f = gp.conditional("f", X[:3])
        assert (f.name, gp.variable.name) == (("b::f", "a::y") if within else ("f", "y"))
        assert set(idata["posterior"].data_vars) == {"ell", "sigma"}
        found.append(outputs)
    for one, other in zip(*found, strict=True):
        assert_allclose(one, other, rtol=1e-12)


def test_a_build_with_the_hyperparameters_of_another_model_is_refused():
    with pm.Model():
        cov = pm.gp.cov.Matern32(2, ls=pm.LogNormal("ell"))
    with pm.Model(), pytest.raises(ValueError, match="depends on ell of another model than this one"):
        sgp.VecchiaMarginal(cov_func=cov, n_inducing=5).build(X)


def test_objects_of_the_whole_model_may_change():
    """A kernel in numbers, of inputs in ``pm.Data`` outside the part that it is used in."""
    with pm.Model():
        places = pm.Data("places", np.arange(30.0)[:, None])
        cov = sgp.cov.FromFunction(lambda a, b: float(a == b), list("abc") * 10)
        with pm.Model(name="a"), pytest.raises(ValueError, match="needs fixed inputs: give X as an array"):
            sgp.ExactMarginal(cov_func=cov).marginal_likelihood("y", places, Y, 0.2)


# -- a second likelihood ------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["marginal_likelihood", "prior"])
def test_a_second_likelihood_in_the_same_model_is_refused(first):
    gp = sgp.GriefGP(cov_func=COV, grid=5, rank=9)
    arguments = {"marginal_likelihood": (X, Y, 0.2), "prior": (X,)}
    with pm.Model() as model:
        getattr(gp, first)("one", *arguments[first])
        before = model.named_vars.keys() | set()
        for second in arguments:
            with pytest.raises(ValueError, match="this GriefGP has a likelihood or prior in this model"):
                getattr(gp, second)("two", *arguments[second])
    assert model.named_vars.keys() == before


def test_a_likelihood_in_another_model_replaces_the_first():
    gp = sgp.ExactMarginal(cov_func=COV)
    for y in (Y, 100.0 + Y):
        with pm.Model() as model:
            gp.marginal_likelihood("y", X, y, 0.2)
        assert gp.model is model
        assert_allclose(gp.predict(X, diag=True)[0].mean(), y.mean(), atol=10.0)


# -- points -------------------------------------------------------------------------------------


def test_more_draws_than_there_are_are_refused_wherever_a_number_is_taken(tmp_path):
    """check and export took what there was; where the number is left out they do, and say how many."""
    gp, _ = fitted()
    idata, path = draws(30), tmp_path / "gp.npz"
    calls = (
        lambda **options: gp.predict_posterior(X[:2], idata, **options),
        lambda **options: gp.loo(idata, **options),
        lambda **options: gp.check(idata, **options),
        lambda **options: gp.export(idata, path, **options),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"num_samples must lie in 1\.\.30, the number of draws"):
            call(num_samples=31, **QUIET)
    assert gp.check(idata, **QUIET).attrs["draws"] == 30
    gp.export(idata, path, **QUIET)
    assert "30 draws" in repr(sgp.load_predictor(path))


def test_unknown_names_in_a_point_are_refused():
    gp, model = fitted(sgp.VecchiaMarginal, n_inducing=5)
    with model:
        gp.build(X, point=POINT | {"later": 1.0})  # of a model that is not yet whole
    wrong = {"els": 0.7, "ell": 0.7, "sigma": 0.2}
    text = r"point has els \(is ell meant\?\), which the model does not know; its free .* ell, sigma"
    for call in (
        lambda: gp.predict(X[:3], wrong),
        lambda: gp.check(wrong, **QUIET),
        lambda: gp.build(X, point={"els": 0.7}),
    ):
        with model, pytest.raises(ValueError, match=text):
            call()


def test_unconstrained_values_alone_are_no_point():
    """They would be passed over, and a verdict or a search be that of the initial point."""
    gp, model = fitted(sgp.VecchiaMarginal, n_inducing=5)
    wrong = {"ell_log__": -1.0, "sigma": 0.2}
    for call in (
        lambda: gp.predict(X[:3], wrong),
        lambda: gp.check(wrong, **QUIET),
        lambda: gp.build(X, point=wrong),
        lambda: gp.rebuild(wrong),
        lambda: sgp.subset_map(gp, X, Y, model["sigma"], point=wrong, **QUIET),
    ):
        with model, pytest.raises(ValueError, match="point has ell_log__, unconstrained: give ell itself"):
            call()


def test_what_find_map_returns_is_a_point():
    gp, model = fitted()
    with model:
        pm.Deterministic("ratio", model["ell"] / model["sigma"])
    more = POINT | {"ell_log__": np.log(0.7), "sigma_log__": np.log(0.2), "ratio": 3.5}
    assert_allclose(gp.predict(X[:3], more, diag=True), gp.predict(X[:3], POINT, diag=True))


@pytest.mark.parametrize("wrong", ["posterior", 3.0])
def test_what_is_no_point(wrong):
    gp, _ = fitted()
    for call in (lambda: gp.check(wrong, **QUIET), lambda: gp.predict(X, wrong)):
        with pytest.raises(TypeError, match="point must be a dictionary .* got (str 'posterior'|float 3)"):
            call()


# -- constructors -------------------------------------------------------------------------------

PUBLIC = [getattr(sgp, name) for name in sgp.__all__]
PUBLIC = [kind for kind in PUBLIC if inspect.isclass(kind) and hasattr(kind, "check")]


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        (sgp.GriefGP, {"m": [9], "c": 1.5}, r"GriefGP takes no m=: that of pm.gp.HSGP is here rank="),
        (sgp.KMCGMarginal, {"cov_funcs": [COV], "Xs": [X]},
         r"no cov_funcs=: multiply .* X=sgp.RegularGrid\(axes\) of KMCGMarginal$"),
        (sgp.VecchiaMarginal, {"approx": "VIF"}, "VecchiaMarginal takes no approx=: .*leave it out"),
        (sgp.SoftKIMarginal, {"kernel": COV}, "takes no kernel=: give the kernel as cov_func="),
        (sgp.SKIPMarginal, {"ranks": 3}, "takes no ranks=; it knows mean_func, cov_func, approx, grid"),
        (sgp.GriefGP, {"mean_func": 2.0}, r"mean_func must be a pm.gp.mean function, got float: .*Const"),
    ],
)  # fmt: skip
def test_arguments_that_a_class_does_not_take(kind, options, text):
    options = options if {"cov_funcs", "kernel"} & set(options) else {"cov_func": COV, **options}
    with pytest.raises(TypeError, match=text):
        kind(**options)


@pytest.mark.parametrize("kind", PUBLIC)
def test_kernels_that_no_class_takes(kind):
    with pytest.raises(TypeError, match=f"{kind.__name__} takes keywords alone: mean_func=, cov_func="):
        kind(COV)
    with pytest.raises(ValueError, match="ExpQuad has 3 lengthscales for 2 columns"):
        kind(cov_func=2.0 * pm.gp.cov.ExpQuad(2, ls=[1.0, 2.0, 3.0]))
    drop = {"GriefGP": "sigma= of marginal_likelihood; .*drop it"}
    words = drop.get(kind.__name__, "drop it$" if "Latent" in kind.__name__ else "sigma= of")
    with pytest.raises(ValueError, match=f"WhiteNoise is no part of the function: .*{words}"):
        kind(cov_func=COV + pm.gp.cov.WhiteNoise(0.1))


def test_lengthscales_of_named_dims_are_counted():
    with pm.Model(coords={"axis": range(3)}):
        kernel = pm.gp.cov.ExpQuad(2, ls=pm.LogNormal("ls", dims="axis"))
        with pytest.raises(ValueError, match="ExpQuad has 3 lengthscales for 2 columns"):
            sgp.ExactMarginal(cov_func=kernel)


def test_product_takes_a_class_of_kernels():
    for wrong, name in [(pm.gp.cov.Kron, "Kron"), (COV, "ExpQuad"), ("Matern52", "str")]:
        with pytest.raises(TypeError, match=f"such as pm.gp.cov.Matern52, got {name}: .*k1 . k2"):
            sgp.cov.Product(wrong, 2, ls=1.0)


def test_what_is_used_is_shown():
    gp = sgp.VecchiaMarginal(cov_func=COV, n_inducing=500)
    assert "n_inducing=500" in repr(gp)
    used = gp.build(X)
    assert used <= 30
    assert f"n_inducing={used})" in repr(gp)
    gp = sgp.GriefGP(cov_func=COV, grid=5)
    with pytest.warns(UserWarning, match="rank=500 exceeds"):
        gp.build(X)
    assert "rank=25," in repr(gp)


# -- names in errors ----------------------------------------------------------------------------


def has(kind, name):
    """Whether a class has a front end."""
    return "Not of this class" not in getattr(kind, name).__doc__


@pytest.mark.parametrize("front_end", ["prior", "marginal_likelihood"])
def test_errors_name_the_classes_that_have_it(front_end):
    """A class that is added and says what it has is named; one that does not say it fails here."""
    able = {kind.__name__ for kind in PUBLIC if has(kind, front_end)}
    for kind in PUBLIC:
        if kind.__name__ in able:
            continue
        with pytest.raises(TypeError) as error:
            getattr(kind(cov_func=COV), front_end)("f", X)
        named = str(error.value).split(" use ")[1].replace(" or ", ", ").split(", ")
        assert set(named) == able


def test_methods_are_named_as_typed():
    gp, _ = fitted()
    for call, name in [(gp.loo, "loo"), (gp.predict, "predict"), (gp.prior, "")]:
        with pytest.raises(TypeError, match=rf"^gp\.{name}\(\) missing" if name else "prior|use"):
            call()


@pytest.mark.parametrize("kind", PUBLIC)
def test_methods_are_found_by_their_names(kind):
    """Pickled by value, a method would take the lock of its module along."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if method.__module__.startswith("pymc_scalable_gp"):
            assert pickle.loads(pickle.dumps(method)) is method, name


# -- beyond the range ---------------------------------------------------------------------------

FAR = np.array([[3.0, 0.0]])


@pytest.mark.parametrize(
    ("cov", "lost"),
    [
        (COV, True),
        (pm.gp.cov.ExpQuad(2, ls=40.0), False),
        (pm.gp.cov.Linear(2, c=0.0, active_dims=[0]), False),
        (pm.gp.cov.Periodic(2, period=2.0, ls=1.0, active_dims=[0]), False),
    ],
)
def test_a_warning_beyond_the_range_only_where_the_variance_is_lost(cov, lost):
    with pm.Model():
        gp = sgp.GriefGP(cov_func=cov, grid=25, rank=25)
        gp.marginal_likelihood("y", X, Y, 0.2)
        if lost:
            for call in (lambda: gp.conditional("f", FAR), lambda: gp.predict(FAR)):
                with pytest.warns(UserWarning, match="column 0 reaches .* the features lose 9"):
                    call()
        else:
            gp.conditional("f", FAR)  # warnings are errors here
            gp.predict(FAR)


def test_the_hyperparameters_of_the_prediction_decide():
    with pm.Model():
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=pm.LogNormal("ell", 0.0, 0.3)), grid=8, rank=40)
        gp.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma"))
    gp.predict(FAR, POINT | {"ell": 60.0}, diag=True)  # warnings are errors here
    with pytest.warns(UserWarning, match="column 0 reaches"):
        gp.predict(FAR, POINT, diag=True)
    with pytest.warns(UserWarning, match="column 0 reaches"):
        gp.predict_posterior(FAR, draws(), **QUIET)
    with pytest.warns(UserWarning, match="column 0 reaches"):  # below the range too
        gp.predict(np.array([[-3.0, -0.5], [0.0, 0.0]]), POINT, diag=True)
    smooth = draws()
    smooth["posterior"]["ell"] = smooth["posterior"]["ell"] + 60.0
    gp.predict_posterior(FAR, smooth, **QUIET)


# -- features that cross ----------------------------------------------------------------------------


def test_covariates_that_pymc_imputes():
    """Parts of X that are observed had no value; the others are free."""
    missing = np.arange(30) % 10 == 3
    with pm.Model() as model:
        with pytest.warns(UserWarning, match="contains missing values"):
            x = pm.Normal("x", 0.5, 0.5, observed=np.ma.masked_array(X[:, 0], missing))
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(1, ls=0.3))
        gp.marginal_likelihood("y", X=x[:, None], y=Y, sigma=0.2)
    with pm.Model() as other:
        whole = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(1, ls=0.3))
        whole.marginal_likelihood("y", X=X[:, :1], y=Y, sigma=0.2)
    at = {"x_unobserved": X[missing, 0]}
    found = model.compile_logp(vars=[model["y"]], mode="FAST_COMPILE")(at)
    assert_allclose(found, other.compile_logp(mode="FAST_COMPILE")({}), rtol=1e-9)
    for a, b in zip(gp.predict(X[:3, :1], at), whole.predict(X[:3, :1], {}), strict=True):
        assert_allclose(a, b, rtol=1e-8, atol=1e-12)


def test_a_model_that_the_gp_has_left():
    """Without free parameters, predictions there were those of the other model's data."""
    gp, models = sgp.ExactMarginal(cov_func=COV), []
    for sign in (1.0, -1.0):
        with pm.Model() as model:
            gp.marginal_likelihood("y", X, sign * Y, 0.2)
        models.append(model)
    with pytest.raises(ValueError, match="has a likelihood in another model since"):
        gp.predict(X[:3], {}, model=models[0])
    with models[0], pytest.raises(ValueError, match="has a likelihood in another model since"):
        gp.predict(X[:3], {})
    with models[0], pytest.raises(ValueError, match="has a likelihood in another model since"):
        gp.conditional("f", X[:3])
    found = gp.predict(X[:3], {}, model=models[1])[0]
    with models[0]:
        gp.marginal_likelihood("again", X, Y, 0.2)
    assert_allclose(gp.predict(X[:3], {}, model=models[0])[0], -found)
    with pytest.raises(TypeError, match="given must be a dictionary, got list"):
        gp.predict(X[:3], {}, given=[], model=models[0])


def test_a_conditional_in_a_copy_of_the_model():
    """Hyperparameters of the model itself would be drawn from their prior there."""
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=pm.HalfNormal("eta") ** 2 * COV)
        gp.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma"))
    with pm.do(model, {"sigma": 0.2}), pytest.raises(ValueError, match="eta, sigma of another model"):
        gp.conditional("f", X[:3])


@pytest.mark.parametrize("kind", [sgp.ExactMarginal, sgp.GriefGP])
def test_inputs_given_have_the_columns_of_the_likelihood(kind):
    with pm.Model():
        gp = kind(cov_func=COV)
        gp.marginal_likelihood("y", X, Y, 0.2)
        wide = {"X": np.column_stack([X, X[:, 0]]), "y": Y, "sigma": 0.2}
        with pytest.raises(ValueError, match=r"given\[\"X\"\] has 3 columns, the GP was built on 2"):
            gp.predict(X[:3], {}, given=wide)
        other = kind(cov_func=COV)
        other.build(X)
        with pytest.raises(ValueError, match="X has 3 columns, the GP was built on 2"):
            other.marginal_likelihood("z", wide["X"], Y, 0.2)


def test_outputs_given_are_whole_numbers():
    """-1, as pandas codes a missing category, counted as the last output."""
    outputs = np.column_stack([X[:, 0], np.arange(len(X)) % 2])
    cov = pm.gp.cov.Matern52(2, ls=1.0, active_dims=[0]) * pm.gp.cov.Coregion(
        2, B=np.eye(2), active_dims=[1]
    )
    with pm.Model():
        gp = sgp.ExactMarginal(cov_func=cov)
        gp.marginal_likelihood("y", outputs, Y, 0.2)
        given = {"X": np.where(outputs == 1.0, -1.0, outputs), "y": Y, "sigma": 0.2}
        with pytest.raises(ValueError, match=r"given\[\"X\"\] has -1 as output in row 1"):
            gp.predict(outputs[:3], {}, given=given)


def test_targets_whose_data_are_no_array():
    """As those of a Series of pandas 2, whose `_data` holds its blocks."""
    pd = pytest.importorskip("pandas")

    class Series(pd.Series):
        _data = property(lambda self: object())

    with pm.Model() as model:
        sgp.ExactMarginal(cov_func=COV).marginal_likelihood("y", X, Series(Y), 0.2)
        sgp.ExactMarginal(cov_func=COV).marginal_likelihood("z", X, Y, 0.2)
    y, z = (model.compile_logp(vars=model[name])({}) for name in "yz")
    assert_allclose(y, z)


def test_a_sigma_of_a_dimension_of_length_one():
    with pm.Model(coords={"one": [0]}):
        sigma = pm.HalfNormal("sigma", dims="one")
        gp = sgp.ExactMarginal(cov_func=COV)
        gp.marginal_likelihood("y", X, Y, sigma)
    at = {"sigma": [0.2]}
    with pm.Model():
        scalar = sgp.ExactMarginal(cov_func=COV)
        scalar.marginal_likelihood("y", X, Y, 0.2)
    assert_allclose(gp.predict(X[:3], at)[0], scalar.predict(X[:3], {})[0])


@pytest.mark.filterwarnings("ignore:y has 6 missing values")
def test_dims_beside_missing_targets():
    y = np.where(np.arange(30) < 6, np.nan, Y)
    with pm.Model(coords={"obs": np.arange(30)}):
        gp = sgp.ExactMarginal(cov_func=COV)
        with pytest.raises(ValueError, match=r"length 30, but X has 24 rows \(those with targets"):
            gp.marginal_likelihood("y", X, y, 0.2, dims="obs")


def test_a_sum_with_a_function_as_mean():
    with pm.Model():
        one = sgp.ExactMarginal(cov_func=COV, mean_func=lambda X: 2.0 * X[:, 0])
        total = one + sgp.ExactMarginal(cov_func=COV)
        total.marginal_likelihood("y", X, Y, 0.2)
        alone = sgp.ExactMarginal(cov_func=2.0 * COV, mean_func=pm.gp.mean.Linear(np.array([2.0, 0.0])))
        alone.marginal_likelihood("z", X, Y, 0.2)
        assert_allclose(total.predict(X[:3], {})[0], alone.predict(X[:3], {})[0], rtol=1e-9)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.filterwarnings("ignore:y has 1 missing values")
def test_columns_of_a_table_in_another_order(missing):
    pd = pytest.importorskip("pandas")
    table, y = pd.DataFrame(X, columns=["a", "b"]), Y.copy()
    y[0] = np.nan if missing else y[0]
    with pm.Model():
        gp = sgp.ExactMarginal(cov_func=COV)
        gp.marginal_likelihood("y", table, y, 0.2)
    with pytest.raises(ValueError, match=r"Xnew has columns in another order.*as \['a', 'b'\]"):
        gp.predict(table[["b", "a"]], {})
    renamed = table.set_axis(["c", "d"], axis=1)
    assert_allclose(gp.predict(renamed, {})[0], gp.predict(X, {})[0])


def test_columns_of_the_table_that_one_part_of_a_sum_was_built_on():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X, columns=["a", "b"])
    first, second = (sgp.GriefGP(cov_func=COV, grid=5, rank=9) for _ in range(2))
    first.build(X)
    second.build(table)
    with pm.Model():
        total = first + second
        total.marginal_likelihood("y", X, Y, 0.2)
        with pytest.raises(ValueError, match="Xnew has columns in another order"):
            total.predict(table[["b", "a"]], {})


def test_columns_of_a_gp_that_was_built_at_the_mode_on_some_rows(monkeypatch):
    pd = pytest.importorskip("pandas")
    monkeypatch.setattr(observed, "reference_on_subset", lambda *_: {})
    table = pd.DataFrame(X, columns=["a", "b"])
    with pm.Model():
        gp = sgp.GriefGP(cov_func=COV, grid=5, rank=9, approx="VIF", neighbors=4)
        gp.marginal_likelihood("y", table, Y, 0.2)
        with pytest.raises(ValueError, match="X has columns in another order"):
            gp.features(table[["b", "a"]])


@pytest.mark.parametrize("kind", [sgp.KMCGMarginal, sgp.GriefGP])
def test_columns_of_a_likelihood_or_a_build_in_another_order(kind):
    """In each class, and where a likelihood, or the user, built the GP."""
    pd = pytest.importorskip("pandas")
    table, words = pd.DataFrame(X, columns=["a", "b"]), "columns in another order"
    other = table[["b", "a"]]
    options = {"grid": 5, "rank": 9, "approx": "DTC"} if kind is sgp.GriefGP else {"n_iter": 8, "probes": 0}
    with pm.Model():
        gp = kind(cov_func=COV, **options)
        gp.marginal_likelihood("y", table, Y, 0.2)
        with pytest.raises(ValueError, match=f"Xnew has {words}"):
            gp.predict(other, {})
        if kind is sgp.KMCGMarginal:
            return
        with pytest.raises(ValueError, match=f"X has {words}"):
            gp.summarize(other.assign(y=Y), "y", progressbar=False)
        for wrong in (gp.features, lambda X: gp.check({}, X=X, progressbar=False)):
            with pytest.raises(ValueError, match=f"X has {words}"):
                wrong(other)
        later = kind(cov_func=COV, **options)
        later.build(table)
        statistics = later.summarize(table.assign(y=Y), "y", progressbar=False)
        with pytest.raises(ValueError, match=f"X has {words}"):
            later.marginal_likelihood("y", other, Y, 0.2)
    for data in ({"statistics": statistics}, {"X": X, "y": Y}):
        with pm.Model():
            later.marginal_likelihood("z", **data, sigma=0.2)
            with pytest.raises(ValueError, match=f"Xnew has {words}"):
                later.predict(other, {})


@pytest.mark.parametrize("kind", [sgp.ExactMarginal, sgp.GriefGP])
def test_noise_in_another_order_than_the_targets(kind):
    """Where X is an array, which has no index, they are compared with one another."""
    pd = pytest.importorskip("pandas")
    targets, sigma = pd.Series(Y), pd.Series(np.linspace(0.1, 0.4, len(Y)))
    with pm.Model() as model:
        gp = kind(cov_func=COV)
        with pytest.raises(ValueError, match=r"sigma has the index of y .* give sigma.loc\[y.index\]"):
            gp.marginal_likelihood("y", X, targets, sigma.iloc[::-1])
        gp.marginal_likelihood("y", X, targets, sigma)
    assert np.isfinite(model.compile_logp()({}))


def test_blocks_whose_targets_are_in_another_order():
    pd = pytest.importorskip("pandas")
    gp = sgp.GriefGP(cov_func=COV, grid=5, rank=9, approx="DTC")
    gp.build(X)
    block = pd.DataFrame(X), pd.Series(Y).iloc[::-1]
    for call in (gp.summarize, lambda source, **options: sgp.fit_inducing(
        sgp.SoftKIMarginal(cov_func=COV, inducing=5), source, sigma=0.2, model=pm.Model(), **options
    )):  # fmt: skip
        with pytest.raises(ValueError, match="y has the index of X in another order"):
            call([block], **QUIET)


@pytest.mark.parametrize(
    ("other", "options", "match"),
    [
        (
            sgp.CholQRMarginal,
            {"approx": "FITC"},
            "VecchiaMarginal to GPs with approx 'FITC': give them approx=.VIF",
        ),
        (
            sgp.CholQRMarginal,
            {},
            "'VFE', 'VIF': give all the same approx=, which beside VecchiaMarginal is",
        ),
    ],
)
def test_sums_of_neighbors_and_features_alone(other, options, match):
    with pytest.raises(TypeError, match=match):
        other(cov_func=COV, **options) + sgp.VecchiaMarginal(cov_func=COV)
