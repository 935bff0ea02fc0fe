"""CholQR: the choice of inducing points, the front end, and kernels on objects."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops._jax import jax
from pymc_scalable_gp.testing import check_marginal_logp
from pymc_scalable_gp.utils.compiled import evaluate

RNG = np.random.default_rng(0)
FAST = {"mode": "FAST_COMPILE"}
X = RNG.uniform(-2.0, 2.0, (120, 2))
Y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * RNG.standard_normal(120)
QUIET = {"progressbar": False}


def problem(**options):
    with pm.Model() as model:
        ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta", 1)
        sigma = pm.HalfNormal("sigma", 1)
        cov = eta**2 * pm.gp.cov.Matern52(2, ls=ell)
        gp = sgp.CholQRMarginal(cov_func=cov, **({"n_inducing": 15} | options))
    return gp, model, sigma


@pytest.mark.parametrize(
    "approx", ["DTC", *(pytest.param(each, marks=pytest.mark.slow) for each in ("FITC", "VFE"))]
)
def test_select_and_sample_the_density(approx):
    gp, model, sigma = problem(approx=approx)
    chosen = gp.select_inducing(X, Y, sigma, model=model, rounds=6, **QUIET)
    assert len(chosen.indices) == gp.rank == 15
    rounding = 1e-10 * np.abs(chosen.objective).max()
    assert (np.diff(chosen.objective) <= rounding).all()
    assert chosen.objective[2] < chosen.objective[1]  # the hyperparameters move too
    assert set(chosen.point) >= {"ell", "eta", "sigma"}
    assert (chosen.proposed == 15).all()
    assert (chosen.accepted <= 15).all()
    with model:
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
    check_marginal_logp(gp, model, **FAST)
    if approx == "FITC":  # the search minimises DTC's objective
        return
    logp = model.compile_logp(vars=[model["y"]], jacobian=False, **FAST)
    values = {f"{k}_log__": np.log(v) for k, v in chosen.point.items() if not k.endswith("__")}
    prior = model.compile_logp(vars=model.free_RVs, jacobian=False, **FAST)(values)
    assert_allclose(-chosen.objective[-1], logp(values) + prior, rtol=1e-4)


@pytest.mark.slow
def test_better_than_random_rows_with_the_same_hyperparameters():
    gp, model, sigma = problem(n_inducing=12)
    chosen = gp.select_inducing(X, Y, sigma, model=model, steps=0, rounds=10, **QUIET)
    others = []
    for seed in range(5):
        rows = np.random.default_rng(seed).permutation(120)[:12]
        options = {"model": model, "steps": 0, "rounds": 1, "swaps": 1} | QUIET
        others.append(gp.select_inducing(X, Y, sigma, start=rows, **options).objective[0])
    assert chosen.objective[-1] < min(others)


def test_dear_kernels_compute_fewer_gains():
    dear = sgp.cov.FromFunction(lambda a, b: float(a == b), list("abc"), input_dim=2, active_dims=[0])
    other = pm.gp.cov.ExpQuad(2, ls=1.0, active_dims=[1])
    assert sgp.CholQRMarginal(cov_func=2.0 * dear * other).n_exact == 4
    assert sgp.CholQRMarginal(cov_func=other).n_exact == 64
    assert sgp.CholQRMarginal(cov_func=dear, n_exact=7).n_exact == 7


def test_warm_start_goes_on_where_it_stopped():
    gp, model, sigma = problem()
    first = gp.select_inducing(X, Y, sigma, model=model, rounds=3, **QUIET)
    second = gp.select_inducing(
        X, Y, sigma, start=first.indices, point=first.point, model=model, rounds=2, **QUIET
    )
    assert_allclose(second.objective[0], first.objective[-1], rtol=1e-6)
    assert second.objective[-1] <= second.objective[0]


@pytest.mark.slow
def test_the_seed_decides():
    results = []
    for seed in (0, 0, 1):
        gp, model, sigma = problem()
        results.append(gp.select_inducing(X, Y, sigma, model=model, rounds=1, random_seed=seed, **QUIET))
    assert np.array_equal(results[0].indices, results[1].indices)
    assert not np.array_equal(results[0].indices, results[2].indices)


def test_a_bad_start_in_one_dimension_does_not_trap():
    """All points at one end: the objective of a good start is reached (figure 4 of the paper)."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 6, 200))[:, None]
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(200)
    found = []
    for start in (np.arange(0, 60, 5), np.linspace(0, 199, 12).astype(int)):
        gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=0.5), n_inducing=12)
        chosen = gp.select_inducing(x, y, 0.1, start=start, rounds=30, tolerance=0.0, **QUIET)
        found.append(chosen.objective[-1])
    assert abs(found[0] - found[1]) < 0.02 * abs(found[1]) + 1.0


BY_KERNEL = "points were chosen by the kernel alone: call gp.select_inducing"


def test_the_likelihood_takes_the_kernels_points_and_says_so():
    """The same as build's, without a search; with one sigma per row and with pm.Data too."""
    wanted = problem()
    with wanted[1]:
        wanted[0].build(X)
    for data, sigma, words in [
        (X, None, BY_KERNEL),
        (X, np.full(120, 0.3), BY_KERNEL),
        ("pm.Data", None, BY_KERNEL),
    ]:
        gp, model, scalar = problem()
        with model:
            inputs, target = X, Y
            if isinstance(data, str):
                inputs, target = pm.Data("X", X), pm.Data("target", Y)
            noise = scalar if sigma is None else sigma
            with pytest.warns(UserWarning, match=words) as found:
                gp.marginal_likelihood("y", X=inputs, y=target, sigma=noise)
        assert len(found) == 1
        assert found[0].filename == __file__
        assert np.array_equal(gp.indices, wanted[0].indices)


def test_nothing_is_said_after_build_or_select_inducing():
    for choose in (
        lambda gp, sigma: gp.build(X),
        lambda gp, sigma: gp.build(X, indices=np.arange(5)),
        lambda gp, sigma: gp.select_inducing(X, Y, sigma, rounds=1, swaps=1, steps=0, **QUIET),
    ):
        gp, model, sigma = problem()
        with model:
            choose(gp, sigma)
            indices = gp.indices
            gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
        assert gp.indices is indices


def test_bad_data_are_refused_before_points_are_chosen():
    gp, model, sigma = problem()
    with model, pytest.raises(ValueError, match="y has 3 values"):
        gp.marginal_likelihood("y", X=X, y=Y[:3], sigma=sigma)
    with pytest.raises(AttributeError, match="call build"):
        _ = gp.indices


def test_the_kernels_points_beat_random_rows():
    """Bound on the evidence at plausible hyperparameters, with one sigma per row and pm.Data."""
    point = {"ell": 1.0, "eta": 1.0}
    bounds = {}
    for name in ("kernel", 0, 1, 2, 3):
        gp, model, _ = problem(n_inducing=12)
        rows = None if name == "kernel" else np.random.default_rng(name).permutation(120)[:12]
        with model:
            gp.build(X, rows, point=point)
            gp.marginal_likelihood("y", X=pm.Data("X", X), y=Y, sigma=np.full(120, 0.2))
        logp = model.compile_logp(vars=[model["y"]], jacobian=False, **FAST)
        bounds[name] = logp({f"{k}_log__": np.log(v) for k, v in (point | {"sigma": 1.0}).items()})
    assert bounds["kernel"] > max(bounds[k] for k in range(4)) + 5.0


def test_the_points_stay_when_data_are_replaced():
    gp, model, sigma = problem()
    with model:
        data, target = pm.Data("X", X), pm.Data("target", Y)
        gp.build(data)
        gp.marginal_likelihood("y", X=data, y=target, sigma=sigma)
        pm.set_data({"X": X[:50] + 1.0, "target": Y[:50]})
    (points,) = evaluate([gp.features(X[gp.indices])], None, model)
    assert_allclose((points**2).sum(axis=1), evaluate([gp.cov_func(X, diag=True)], None, model)[0][:15])


@pytest.mark.filterwarnings("ignore:only .* of 50 inducing points are independent")
@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2))])
def test_a_sine_with_the_usual_priors(seed):
    """Rounding alone leaves variances of -7e-6 beside points that nearly depend on each other."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 10, 200))[:, None]
    y = np.sin(4 * x[:, 0]) + 0.2 * rng.standard_normal(200)
    with pm.Model() as model:
        ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta", 1)
        sigma = pm.HalfNormal("sigma", 1)
        gp = sgp.CholQRMarginal(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ell), n_inducing=50)
        chosen = gp.select_inducing(x, y, sigma, rounds=2, swaps=10, **QUIET)
    exact = sgp.subset_map(pm.gp.Marginal(cov_func=gp.cov_func), x, y, sigma, model=model, **QUIET)
    for name, value in exact.items():
        assert_allclose(chosen.point[name], value, rtol=0.03)
    # At the model's initial lengthscale, 1.5, no more than 23 rows are independent.
    assert gp.rank >= 40


def test_converges_to_the_exact_gp():
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(2, ls=1.0)
        exact = pm.gp.Marginal(cov_func=cov)
        exact.marginal_likelihood("z", X=X, y=Y, sigma=0.2)
        gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=60)
        gp.build(X)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.2, progressbar=False)
    one, other = (model.compile_logp(vars=[model[name]], **FAST)({}) for name in ("y", "z"))
    assert_allclose(one, other, rtol=1e-3)
    new = np.array([[0.1, 0.2], [30.0, 0.0]])
    for found, wanted in zip(
        gp.predict(new, {}, diag=True, model=model),
        exact.predict(new, {}, diag=True, model=model),
        strict=True,
    ):
        assert_allclose(found, wanted, atol=1e-3)


def test_only_a_scale_and_sigma_free_needs_no_rows():
    with pm.Model() as model:
        eta, sigma = pm.HalfNormal("eta", 1), pm.HalfNormal("sigma", 1)
        cov = eta**2 * pm.gp.cov.ExpQuad(2, ls=1.0)
        gp = sgp.CholQRMarginal(cov_func=cov, approx="DTC", n_inducing=12)
        gp.select_inducing(X, Y, sigma, rounds=2, **QUIET)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
    assert gp.likelihood_path == "summarized"
    check_marginal_logp(gp, model, **FAST)


# -- kernels on objects ---------------------------------------------------------------------


def sequences(n, seed=0):
    """Random DNA; half of them carry a motif that raises the target."""
    rng = np.random.default_rng(seed)
    strings, y = [], rng.standard_normal(n) * 0.1
    for i in range(n):
        letters = list(rng.choice(list("ACGT"), 30))
        if i % 2:
            letters[10:18] = "GATTACAG"
            y[i] += 1.0
        strings.append("".join(letters))
    return strings, y


def test_kernels_on_objects_need_no_rows_either():
    """Their matrix is a number, without the inputs in its graph: they are recognised all the same."""
    strings, y = sequences(60)
    for wrap in (lambda name, value: value, pm.Data):
        with pm.Model() as model:
            eta, sigma = pm.HalfNormal("eta", 1), pm.HalfNormal("sigma", 1)
            cov = eta**2 * sgp.cov.Spectrum(strings, k=3)
            gp = sgp.CholQRMarginal(cov_func=cov, approx="DTC", n_inducing=10)
            gp.build(np.arange(60.0)[:, None])
            target = wrap("target", y)
            gp.marginal_likelihood("y", X=np.arange(60.0)[:, None], y=target, sigma=sigma)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            check_marginal_logp(gp, model, **FAST)
        assert gp.likelihood_path == "summarized"


def test_strings():
    strings, y = sequences(120)
    places = np.arange(120.0)[:, None]
    cov = sgp.cov.Spectrum(strings, k=4)
    K = evaluate([cov(places)])[0]
    assert_allclose(np.diag(K), 1.0)
    assert np.linalg.eigvalsh(K).min() > -1e-12
    with pm.Model() as model:
        eta, sigma = pm.HalfNormal("eta", 2), pm.HalfNormal("sigma", 1)
        gp = sgp.CholQRMarginal(cov_func=eta**2 * cov, n_inducing=20)
        chosen = gp.select_inducing(places[:80], y[:80], sigma, rounds=4, **QUIET)
        gp.marginal_likelihood("y", X=places[:80], y=y[:80], sigma=sigma)
    check_marginal_logp(gp, model)
    mean, var = gp.predict(places[80:], chosen.point, diag=True, model=model)
    assert np.mean((mean - y[80:]) ** 2) < 0.35 * np.var(y[80:])
    assert (var > 0).all()


def overlap(a, b, power=1.0):
    return (len(a & b) / np.sqrt(len(a) * len(b))) ** power


def test_a_function_of_sets():
    rng = np.random.default_rng(0)
    sets = [frozenset(rng.permutation(12)[:5].tolist()) for _ in range(40)]
    cov = sgp.cov.FromFunction(overlap, sets)
    places = np.arange(40.0)[:, None]
    K = evaluate([cov(places)])[0]
    assert_allclose(K, [[overlap(a, b) for b in sets] for a in sets])
    assert_allclose(evaluate([cov(places, diag=True)])[0], 1.0)
    assert len(cov.kept) == 40
    with pm.Model() as model:
        both = pm.HalfNormal("eta", 1) ** 2 * cov
        gp = sgp.CholQRMarginal(cov_func=both, n_inducing=8)
        gp.build(places)
        gp.marginal_likelihood("y", X=places, y=np.arange(40.0) / 40, sigma=0.3, progressbar=False)
        gp.conditional("f", places[:4])
    check_marginal_logp(gp, model, **FAST)
    point = sgp.cov.FromFunction(overlap, sets, power=2.0)
    assert_allclose(evaluate([point(places)])[0], K**2)


@pytest.mark.parametrize(
    "mode", ["FAST_COMPILE", BY_OPS, pytest.param("NUMBA", marks=pytest.mark.slow), "JAX"],
    ids=["python", "by Ops", "numba", "jax"],
)  # fmt: skip
def test_unknown_places_on_every_back_end(mode):
    """Inputs that are known at run time only: the kernel is called there."""
    if mode == "JAX":
        pytest.importorskip("jax")
    cov, X, Z = sgp.cov.Spectrum(["abcabc", "abcd", "cdab"], k=2), pt.dmatrix(), pt.dmatrix()
    function = pytensor.function([X, Z], cov(X, Z), mode=mode)
    places = np.arange(3.0)[:, None]
    assert_allclose(function(places, places[1:]), evaluate([cov(places)])[0][:, 1:])


@pytest.mark.parametrize("mode", ["FAST_COMPILE", BY_OPS, "JAX"], ids=["python", "by Ops", "jax"])
def test_another_column_is_random(mode):
    """As where inputs are missing: a kernel on objects is a number to the gradient in the others."""
    if mode == "JAX":
        pytest.importorskip("jax")
    strings, (places, x) = ["abab", "abba", "bbaa"], np.array([[0.0, 1.0, 2.0], [0.1, 0.4, 0.9]])
    cov = sgp.cov.Spectrum(strings, k=2, input_dim=2, active_dims=[0])
    cov = cov * pm.gp.cov.ExpQuad(2, ls=0.5, active_dims=[1])
    value = pt.dscalar("x")
    K = cov(pt.set_subtensor(pt.as_tensor(np.column_stack([places, x]))[1, 1], value))
    found, slope = pytensor.function([value], [K, pt.grad(K[0, 1], value)], mode=mode)(0.4)
    objects = evaluate([sgp.cov.Spectrum(strings, k=2)(places[:, None])])[0]
    assert_allclose(found, objects * np.exp(-2.0 * np.subtract.outer(x, x) ** 2), rtol=1e-13)
    assert_allclose(slope, -4.0 * 0.3 * found[0, 1], rtol=1e-13)
    if mode == "JAX":  # whose samplers differentiate, for several chains at once
        entry = pytensor.function([value], K[0, 1], mode=mode).vm.jit_fn
        assert_allclose(jax.vmap(jax.grad(lambda a: entry(a)[0]))(np.array([0.4]))[0], slope, rtol=1e-13)


def test_a_product_of_a_string_and_a_number():
    strings, y = sequences(30)
    rows = np.column_stack([np.arange(30.0), RNG.uniform(0, 1, 30)])
    cov = sgp.cov.Spectrum(strings, k=2, input_dim=2, active_dims=[0]) * pm.gp.cov.ExpQuad(
        2, ls=0.5, active_dims=[1]
    )
    with pm.Model() as model:
        gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=10)
        gp.build(rows)
        gp.marginal_likelihood("y", X=rows, y=y, sigma=0.2, progressbar=False)
    check_marginal_logp(gp, model, **FAST)


def test_histograms_and_categories():
    H = RNG.dirichlet(np.ones(5), 30)
    K = evaluate([sgp.cov.HistogramIntersection(5)(H)])[0]
    assert_allclose(K, np.minimum(H[:, None], H).sum(axis=2))
    assert_allclose(evaluate([sgp.cov.HistogramIntersection(5)(H, diag=True)])[0], 1.0)
    with pytest.raises(ValueError, match="non-negative"):
        sgp.cov.HistogramIntersection(5)(H - 1.0)
    C = RNG.integers(0, 3, (30, 4)).astype(float)
    differ = (C[:, None] != C).sum(axis=2)
    with pm.Model() as model:
        ls = pm.HalfNormal("ls", 2)
        cov = sgp.cov.Hamming(4, ls=ls)
        gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=10)
        gp.build(C)
        gp.marginal_likelihood("y", X=C, y=C[:, 0], sigma=0.2, progressbar=False)
    assert_allclose(evaluate([cov(C)], {"ls": 1.5}, model)[0], np.exp(-differ / 1.5))
    assert_allclose(evaluate([cov(C, diag=True)], {"ls": 1.5}, model)[0], 1.0)
    check_marginal_logp(gp, model, **FAST)


# -- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: sgp.cov.FromFunction(lambda a, b: a - b, [1, 2, 3]), ValueError, "not symmetric"),
        (lambda: sgp.cov.FromFunction(lambda a, b: [1.0, 2.0], "ab"), TypeError, "objects must be"),
        (
            lambda: sgp.cov.FromFunction(lambda a, b: [1.0, 2.0], ["a", "b"]),
            TypeError,
            "must return one finite number",
        ),
        (lambda: sgp.cov.Spectrum(["ab", "abcd"], k=3), ValueError, r"strings\[0\] is shorter"),
        (lambda: sgp.cov.Spectrum(["abcd", 3], k=3), TypeError, r"strings\[1\] is not a string"),
        (lambda: sgp.cov.Spectrum(["abcd"], input_dim=2), ValueError, "takes one column"),
        (lambda: sgp.cov.Spectrum(["abcd"])(np.array([[1.0]])), ValueError, "no place in the 1"),
        (lambda: sgp.cov.Hamming(2, ls=np.ones(2)), ValueError, "ls must be a scalar"),
    ],
)
def test_bad_kernels(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_data_that_may_change_are_refused_by_kernels_on_objects():
    with pm.Model(), pytest.raises(ValueError, match=r"give X as an array in place of pm.Data"):
        sgp.cov.Spectrum(["abcd", "abce"])(pm.Data("X", np.zeros((2, 1))))


def test_an_indefinite_function_is_named():
    cov = sgp.cov.FromFunction(lambda a, b: float(abs(a - b)) + (a == b), list(range(30)))
    gp, places = sgp.CholQRMarginal(cov_func=cov, n_inducing=10), np.arange(30.0)[:, None]
    with pytest.raises(ValueError, match="not positive semidefinite"):
        gp.select_inducing(places, np.zeros(30), 0.1, **QUIET)
    with pytest.raises(ValueError, match="not positive semidefinite"):
        gp.build(places)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"sigma": np.ones(120)}, ValueError, "needs a scalar sigma"),
        ({"start": [1, 1]}, ValueError, "more than once"),
        ({"start": [1, 120]}, ValueError, "start names row 120, but X has 120 rows"),
        ({"start": [-1, 119]}, ValueError, "start names row -1, but X has 120 rows"),
        ({"start": [0.5]}, TypeError, "start must be integer rows"),
        ({"start": np.arange(7)}, ValueError, "start has 7 rows, but n_inducing=5: give 5 rows, or"),
        ({"start": np.arange(4)}, ValueError, "start has 4 rows, but n_inducing=5"),
        ({"rounds": 0}, ValueError, "rounds must be at least 1"),
        ({"y": Y[:3]}, ValueError, "y has 3 values"),
    ],
)
def test_bad_calls(change, error, match):
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), n_inducing=5)
    with pytest.raises(error, match=match):
        gp.select_inducing(**({"X": X, "y": Y, "sigma": 0.1} | change), **QUIET)


def test_bad_numbers():
    cov = pm.gp.cov.ExpQuad(2, ls=1.0)
    with pytest.raises(ValueError, match="n_inducing must be at least 1"):
        sgp.CholQRMarginal(cov_func=cov, n_inducing=0)
    gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=120)
    with pytest.raises(ValueError, match="n_inducing=120 must be below the number of rows, 120"):
        gp.build(X)
    for ask in (lambda: gp.rank, lambda: gp.indices):
        with pytest.raises(AttributeError, match="call build"):
            ask()


def test_the_number_of_points_without_asking():
    """On up to 100 rows the default was refused, which nobody had given."""
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern32(2, ls=0.5))
    assert gp.settings()["n_inducing"] is None
    for few, expected in ((1, 1), (2, 1), (21, 20), (100, 99), (120, 100)):
        assert gp.build(X[:few]) == gp.settings()["n_inducing"] == expected
    assert len(gp.select_inducing(X[:12], Y[:12], 0.1, rounds=1, swaps=1, **QUIET).indices) == 11


def test_a_start_that_cannot_be_evaluated_is_named():
    gp, model, sigma = problem()
    for point in ({"sigma": 1e-200}, {"eta": 1e200}):
        name, value = point.copy().popitem()
        words = f"at the start, .*{name} = {value:.0e}".replace("e+", r"\.e\+").replace("e-", r"\.e-")
        with pytest.raises(ValueError, match=words):
            gp.select_inducing(X, Y, sigma, point=point, model=model, **QUIET)


def test_build_needs_the_values_of_random_hyperparameters():
    gp, model, _ = problem()
    with pytest.raises(ValueError, match="build in the model context, or give indices="):
        gp.build(X)
    with model, pytest.raises(ValueError, match="variances are not finite and positive at .*eta"):
        gp.build(X, point={"eta": 0.0})
    assert gp.build(X, indices=[1, 2]) == 2


def test_a_search_needs_the_model_of_random_hyperparameters():
    """Outside it they were fixed at one draw, whatever point= said."""
    for part in ("ell", "sigma", "mean"):
        gp, model, sigma = problem()
        cov = gp.cov_func if part == "ell" else pm.gp.cov.ExpQuad(2, ls=1.0)
        mean = pm.gp.mean.Constant(model["eta"]) if part == "mean" else None
        gp = sgp.CholQRMarginal(mean_func=mean, cov_func=cov, n_inducing=5)
        with pytest.raises(TypeError, match="no model is known here: .* or give model="):
            gp.select_inducing(X, Y, sigma if part == "sigma" else 0.1, point={"ell": 0.3}, **QUIET)
        with model:
            found = gp.select_inducing(X[:20], Y[:20], sigma, rounds=1, swaps=1, steps=0, **QUIET)
        assert "sigma" in found.point


def test_a_sum_has_no_points_of_its_own():
    one, two = (sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=s)) for s in (1.0, 0.1))
    for name in ("select_inducing", "indices"):
        with pytest.raises(AttributeError, match=r"each part, gp.parts, .* the kernel k1 \+ k2"):
            getattr(one + two, name)


def test_a_sum_left_to_itself_takes_each_kernels_points():
    with pm.Model() as model:
        parts = [
            sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern32(2, ls=ls), n_inducing=n)
            for ls, n in ((1.0, 8), (0.2, 5))
        ]
        total = parts[0] + parts[1]
        with pytest.warns(UserWarning, match="chosen by the kernel alone"):
            total.marginal_likelihood("y", X=X, y=Y, sigma=0.2)
    alone = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern32(2, ls=0.2), n_inducing=5)
    alone.build(X)
    assert np.array_equal(parts[1].indices, alone.indices)
    check_marginal_logp(total, model, **FAST)


def test_duplicated_rows_to_start_from():
    rows = np.r_[X[:20], X[:20]]
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), n_inducing=4)
    with pytest.warns(UserWarning, match="1 of the 4 rows to start from depend on"):
        gp.select_inducing(rows, np.r_[Y[:20], Y[:20]], 0.1, start=[0, 20, 3, 5], **QUIET)
    assert gp.rank == 4
    assert len(np.unique(rows[gp.indices], axis=0)) == 4


def test_fewer_independent_rows_than_points():
    rows = np.repeat(X[:6], 5, axis=0)
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), n_inducing=10)
    with pytest.warns(UserWarning, match="only 6 of 10 inducing points are independent"):
        gp.select_inducing(rows, np.repeat(Y[:6], 5), 0.1, start=np.arange(0, 30, 3), **QUIET)
    assert gp.rank == 6


def test_neighbors_go_by_the_hyperparameters_that_were_found_with_the_points():
    """They went by the model's initial point."""
    gp, model, sigma = problem(approx="VIF", neighbors=5)
    found = gp.select_inducing(X, Y, sigma, model=model, rounds=1, swaps=1, **QUIET)
    with model:
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
    metric = gp.training.plan.ordering.metric
    steps = np.diff(metric.coordinates(X), axis=0) / np.diff(X, axis=0)
    assert_allclose(steps * found.point["ell"], 1.0, rtol=1e-6)
