"""SKIP: the tree of compressed products, the two front ends, and tasks."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from compared import draw_many, figures_at
from numpy.testing import assert_allclose
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.skip import tree as skip_tree
from pymc_scalable_gp.testing import check_feature_map, check_marginal_logp
from pymc_scalable_gp.utils.compiled import evaluate

RNG = np.random.default_rng(0)
FAST = {"mode": "FAST_COMPILE"}
X5 = RNG.standard_normal((200, 5))


def exact(cov, X):
    return evaluate([cov(X)])[0]


def gram(gp, X, *args):
    phi = evaluate([gp.features(X)], *args)[0]
    return phi @ phi.T


@pytest.mark.parametrize("used", [2, 3])
def test_many_inputs_are_told_to_take_long(monkeypatch, recwarn, used):
    """Of those that the kernel looks at, one more than what compiles in seconds."""
    monkeypatch.setattr("pymc_scalable_gp.methods.skip.features.MANY_INPUTS", 2)
    cov = pm.gp.cov.ExpQuad(5, ls=1.5, active_dims=list(range(used)))
    sgp.SKIPMarginal(cov_func=cov, rank=2, grid_size=8).build(X5)
    told = [str(each.message) for each in recwarn if "compiles a step" in str(each.message)]
    assert len(told) == (used > 2)
    assert all("each of 3 inputs" in each and "sgp.VecchiaMarginal" in each for each in told)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5])
def test_converges_to_the_kernel_as_rank_and_grid_grow(d):
    X, cov = X5[:, :d], 1.7 * pm.gp.cov.ExpQuad(d, ls=1.5)
    K, errors = exact(cov, X), []
    for rank, grid in ((4, 20), (8, 40), (16, 100)):
        gp = sgp.SKIPMarginal(cov_func=cov, rank=rank, grid_size=grid)
        gp.build(X)
        errors.append(np.linalg.norm(gram(gp, X) - K) / np.linalg.norm(K))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < {1: 1e-4, 2: 1e-4, 3: 1e-2, 4: 2e-2, 5: 0.1}[d]


def ideal_tree(X, ls, rank):
    """Last two roots when every product is cut to its leading eigenvectors."""

    def root(K):
        values, vectors = np.linalg.eigh(K)
        return vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0))

    roots = [root(np.exp(-0.5 * (x[:, None] - x) ** 2 / ls**2)) for x in X.T]
    while len(roots) > 2:
        pairs = zip(roots[:-1:2], roots[1::2], strict=False)
        merged = [root((A @ A.T) * (B @ B.T)) for A, B in pairs]
        roots = merged + roots[2 * len(merged) :]
    A, B = roots
    return (A @ A.T) * (B @ B.T)


def test_the_tree_is_the_best_one_where_it_was_built_and_close_to_it_elsewhere():
    X, rank = RNG.standard_normal((400, 6)), 12
    with pm.Model() as model:
        ell = pm.HalfNormal("ell", 1)
        gp = sgp.SKIPMarginal(cov_func=pm.gp.cov.ExpQuad(6, ls=ell), rank=rank)
        gp.build(X, point={"ell": 1.0})
    for ls, bound in ((1.0, 1.02), (0.8, 1.15), (1.3, 1.15)):
        K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2) / ls**2)
        best = np.linalg.norm(ideal_tree(X, ls, rank) - K)
        assert np.linalg.norm(gram(gp, X, {"ell": ls}, model) - K) < bound * best


@pytest.mark.parametrize("support", [40, 3000])
def test_never_above_the_kernel(support, monkeypatch):
    monkeypatch.setattr(skip_tree, "SUPPORT_ROWS", support)
    cov = pm.gp.cov.ExpQuad(5, ls=1.0)
    gp = sgp.SKIPMarginal(cov_func=cov, rank=8, grid_size=200)
    gp.build(X5)
    check_feature_map(gp, X5, tol=1e-5)  # cubic interpolation overshoots by h^3
    assert np.linalg.eigvalsh(exact(cov, X5) - gram(gp, X5)).min() > -1e-4


def test_merges_of_small_exact_rank_are_not_compressed():
    cov = (
        pm.gp.cov.Linear(3, c=0.0, active_dims=[0])
        * pm.gp.cov.Linear(3, c=0.5, active_dims=[1])
        * pm.gp.cov.ExpQuad(3, ls=1.0, active_dims=[2])
    )
    gp = sgp.SKIPMarginal(cov_func=cov, rank=10)
    assert gp.build(X5[:, :3]) == 10  # 1 x 1 x 10
    assert gp.feature_map.trees[0].cores == [None]
    X = X5[:, :3]
    assert_allclose(gram(gp, X), exact(cov, X), atol=2e-4)


@pytest.mark.parametrize(
    ("roots", "single", "expected"),
    [
        ("a", False, ["a"]),
        ("ab", False, ["a", "b"]),
        ("ab", True, ["(ab)"]),
        ("abcde", False, ["((ae)c)", "(bd)"]),
        ("abcdef", True, ["(((ae)c)((bf)d))"]),
        ("abcdefghijkl", False, ["(((ai)e)((ck)g))", "(((bj)f)((dl)h))"]),
    ],
)
def test_the_tree_is_balanced(roots, single, expected):
    assert skip_tree.merge_by_halves(roots, lambda a, b: f"({a}{b})", single) == expected


def test_the_number_of_eigenvectors_that_count():
    assert skip_tree._eigenvectors(2.0 * np.eye(5)[:, :3]) == 3.0


def test_inputs_that_vary_most_are_shared_out():
    """The kernel of columns 0 and 1 needs many eigenvectors, that of the rest next to none."""
    cov = pm.gp.cov.ExpQuad(4, ls=np.array([0.5, 0.5, 20.0, 20.0]))
    gp = sgp.SKIPMarginal(cov_func=cov, rank=14, grid_size=60)
    gp.build(X5[:, :4])
    assert set(gp.feature_map.trees[0].order[:2]) == {0, 1}
    K = exact(cov, X5[:, :4])
    assert np.linalg.norm(gram(gp, X5[:, :4]) - K) < 0.03 * np.linalg.norm(K)


def test_a_discrete_and_a_constant_column():
    X = np.column_stack([X5[:, 0], X5[:, 1] > 0, np.ones(200)])
    cov = pm.gp.cov.ExpQuad(3, ls=1.0)
    gp = sgp.SKIPMarginal(cov_func=cov, rank=20)
    gp.build(X)
    assert_allclose(gram(gp, X), exact(cov, X), atol=2e-4)


def test_far_from_the_data_the_prior_returns():
    X, y = X5[:, :2], np.sin(X5[:, 0])
    with pm.Model() as model:
        gp = sgp.SKIPMarginal(cov_func=2.0 * pm.gp.cov.ExpQuad(2, ls=0.5), rank=20)
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.1)
        exact_gp = pm.gp.Marginal(cov_func=2.0 * pm.gp.cov.ExpQuad(2, ls=0.5))
        exact_gp.marginal_likelihood("z", X=X, y=y, sigma=0.1)
    far = np.array([[30.0, 0.0], [3.0, -30.0]])
    with pytest.warns(UserWarning, match="column 0 reaches 2"):
        mean, var = gp.predict(far, {}, diag=True, model=model)
    assert_allclose(mean, 0.0, atol=1e-6)
    assert_allclose(var, 2.0, rtol=1e-4)
    edge = np.array([[X[:, 0].max() + 0.1, 0.0]])
    inside = X[:10] * 0.9
    for rows in (edge, inside):
        found, wanted = (g.predict(rows, {}, diag=True, model=model) for g in (gp, exact_gp))
        assert_allclose(found[0], wanted[0], atol=0.02)
        assert_allclose(found[1], wanted[1], rtol=0.15, atol=1e-3)


def test_gradient_in_the_inputs():
    """X may be random: positions, fading and merges are differentiable in it."""
    with pm.Model() as model:
        free = pm.Normal("free", 0.0, 1.0, shape=(12, 3), initval=X5[:12, :3] * 0.9)
        gp = sgp.SKIPMarginal(cov_func=pm.gp.cov.ExpQuad(3, ls=1.0), rank=6)
        gp.build(X5[:, :3])
        gp.marginal_likelihood("y", X=free, y=X5[:12, 3], sigma=0.3)
    point = model.initial_point(0)
    logp, slope = model.compile_logp(**FAST), model.compile_dlogp(**FAST)
    direction = RNG.standard_normal((12, 3))
    values = [logp({"free": point["free"] + h * direction}) for h in (-1e-5, 1e-5)]
    assert_allclose(slope(point) @ direction.ravel(), np.diff(values)[0] / 2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("approx", "mode"),
    [("DTC", "FAST_COMPILE"), ("FITC", None), pytest.param("VFE", "FAST_COMPILE", marks=pytest.mark.slow)],
)
def test_density_of_a_tree_with_a_compressed_merge(approx, mode):
    with pm.Model() as model:
        ell, eta = pm.InverseGamma("ell", 3, 3, shape=5), pm.HalfNormal("eta", 1)
        cov = eta**2 * pm.gp.cov.ExpQuad(5, ls=ell)
        gp = sgp.SKIPMarginal(cov_func=cov, rank=5, approx=approx)
        gp.marginal_likelihood("y", X=X5[:60], y=X5[:60, 0], sigma=pm.HalfNormal("sigma", 1))
    check_marginal_logp(gp, model, mode=mode)


def test_more_features_than_rows():
    with pm.Model() as model:
        gp = sgp.SKIPMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=pm.HalfNormal("ell", 1)), rank=7)
        gp.marginal_likelihood("y", X=X5[:9, :2], y=X5[:9, 2], sigma=0.2)
    check_marginal_logp(gp, model, **FAST)


# -- latent ---------------------------------------------------------------------------------


def latent(X, *, fixed=False, centered=False, cov=None):
    with pm.Model() as model:
        ell = 0.9 if fixed else pm.InverseGamma("ell", 3, 3)
        eta = 1.3 if fixed else pm.HalfNormal("eta", 1)
        cov = eta**2 * pm.gp.cov.ExpQuad(X.shape[1], ls=ell) if cov is None else cov
        gp = sgp.SKIPLatent(cov_func=cov, rank=6)
        gp.prior("f", X=X, centered=centered)
    return gp, model


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("fixed", [False, True])
def test_latent_values_are_features_times_coefficients(d, fixed):
    X = X5[:30, :d]
    gp, model = latent(X, fixed=fixed)
    point = {"ell": 0.8, "eta": 1.1, "f_coeffs": RNG.standard_normal(gp.rank)}
    f, phi = evaluate([model["f"], gp.features(X)], point, model)
    assert_allclose(f, phi @ point["f_coeffs"], atol=1e-9)


def test_centered_coefficients_carry_the_scale():
    X = X5[:30, :2]
    gp, model = latent(X, centered=True)
    draws = draw_many(pm.do(model, {"ell": 0.9, "eta": 3.0})["f_coeffs"], 400, 1)
    assert_allclose(draws.std(), 3.0, rtol=0.05)
    point = {"ell": 0.8, "eta": 3.0, "f_coeffs": RNG.standard_normal(gp.rank)}
    f, phi = evaluate([model["f"], gp.features(X)], point, model)
    assert_allclose(f, phi @ point["f_coeffs"] / 3.0, atol=1e-9)
    cov = pm.gp.cov.ExpQuad(2, ls=1.0) + pm.gp.cov.ExpQuad(2, ls=2.0)
    with pytest.raises(ValueError, match="needs one product kernel"):
        latent(X, centered=True, cov=cov)


def test_fixed_hyperparameters_keep_only_the_roots():
    _, model = latent(X5[:30, :5], fixed=True)
    assert "f_features" in {v.name for v in graph_inputs([model["f"]])}
    gradient = model.compile_dlogp(**FAST)(model.initial_point(0))
    assert np.isfinite(gradient).all()


def test_shared_variables_have_names_of_their_own():
    """As nutpie wants under JAX: of the roots of several terms, of a sum, in parts of a model."""
    cov = [pm.gp.cov.ExpQuad(2, ls=scale) for scale in (0.5, 2.0)]
    with pm.Model() as model:
        sgp.SKIPLatent(cov_func=cov[0] + cov[1], rank=5).prior("f", X5[:30, :2])
        first, second = (sgp.GriefGP(cov_func=each, grid=4, rank=6) for each in cov)
        (first + second).prior("g", X5[:30, :2])
        for name in "ab":
            with pm.Model(name=name):
                sgp.GriefGP(cov_func=cov[0], grid=4, rank=6).prior("f", X5[:30, :2])
                sgp.ExactMarginal(cov_func=cov[0]).marginal_likelihood("y", X5[:30, :2], X5[:30, 2], 0.1)
    found = [*model.replace_rvs_by_values(model.deterministics), model.logp()]
    names = [v.name for v in set(graph_inputs(found)) if isinstance(v, SharedVariable)]
    assert sorted(names) == sorted(set(names))
    held = {"f_features", "f_features_2", "g_features", "g_features_2", "a::f_features", "b::f_features"}
    assert held | {"a::y", "a::X of y"} <= set(names)


def test_latent_and_marginal_give_the_same_posterior():
    """Conditional on the coefficients' Gaussian posterior, f has the marginal class's moments."""
    X, y, new = X5[:40, :3], np.sin(X5[:40, 0]), X5[:5, :3] * 0.8
    options = {"cov_func": pm.gp.cov.ExpQuad(3, ls=1.0), "rank": 8}
    with pm.Model() as model:
        marginal = sgp.SKIPMarginal(approx="DTC", **options)
        marginal.marginal_likelihood("y", X=X, y=y, sigma=0.2)
    with pm.Model() as other:
        gp = sgp.SKIPLatent(**options)
        gp.prior("f", X=X)
        gp.conditional("f_new", new, jitter=0.0)
    phi = evaluate([gp.features(X)])[0]
    precision = np.eye(gp.rank) + phi.T @ phi / 0.04
    mean = np.linalg.solve(precision, phi.T @ y / 0.04)
    expected = marginal.predict(new, {}, diag=True, model=model)[0]
    drawn = draw_many(pm.do(other, {"f_coeffs": mean})["f_new"], 2000, 0)
    assert_allclose(drawn.mean(axis=0), expected, atol=0.03)


# -- bad input ------------------------------------------------------------------------------

COV = pm.gp.cov.ExpQuad(3, ls=1.0, active_dims=[0, 1])


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"grid_size": 5}, ValueError, "grid_size must be at least 6"),
        ({"grid_size": 20, "rank": 21}, ValueError, "rank=21 exceeds grid_size=20"),
        ({"rank": 0}, ValueError, "rank must be at least 1"),
        ({"rank": 2.5}, TypeError, "rank must be an int"),
        ({"cov_func": pm.gp.cov.Matern52(3, ls=1.0)}, ValueError, "not a product of 1-D"),
        (
            {"cov_func": COV * pm.gp.cov.Coregion(3, W=np.ones((2, 1)), kappa=np.ones(2), active_dims=[2])},
            ValueError,
            "contains Coregion: give",
        ),
    ],
)
def test_bad_options(options, error, match):
    with pytest.raises(error, match=match):
        sgp.SKIPMarginal(**({"cov_func": COV} | options))


def test_the_rank_needs_a_build():
    with pytest.raises(AttributeError, match=r"call build\(X\) first"):
        _ = sgp.SKIPMarginal(cov_func=COV).rank


# -- likelihood by products -----------------------------------------------------------------


class EveryProbe(sgp.SKIPMarginal):
    """With as many unit probes as rows."""

    def make_likelihood(self, data, progressbar=True, random_seed=0):
        found = super().make_likelihood(data, progressbar, random_seed)
        return replace(found, probes=np.sqrt(data.size) * np.eye(data.size))


def by_products(X, y, *, approx="FITC", cov=None, every_probe=False, mean=None, point=None, **options):
    """Model of a tree with a compressed merge; as many unit probes as rows make the trace exact."""
    options = {"n_iter": len(y), "probes": 3, "preconditioner": 10} | options
    with pm.Model() as model:
        ell, eta = pm.InverseGamma("ell", 3, 3, shape=X.shape[1]), pm.HalfNormal("eta", 1)
        cov = eta**2 * pm.gp.cov.ExpQuad(X.shape[1], ls=ell) if cov is None else cov(ell, eta)
        kind = EveryProbe if every_probe else sgp.SKIPMarginal
        gp = kind(cov_func=cov, mean_func=mean, rank=5, approx=approx, **options)
        gp.build(X, point=point)
        gp.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1))
    return gp, model


def near(model):
    rng = np.random.default_rng(1)
    return {k: v + 0.2 * rng.standard_normal(np.shape(v)) for k, v in model.initial_point(0).items()}


def two_terms(ell, eta):
    one = pm.gp.cov.ExpQuad(3, ls=ell[0], active_dims=[0])
    return eta**2 * pm.gp.cov.ExpQuad(3, ls=ell) + one


@pytest.mark.parametrize(
    "approx", ["DTC", *(pytest.param(each, marks=pytest.mark.slow) for each in ("FITC", "VFE"))]
)
def test_products_give_the_density_of_the_features(approx):
    X, y = X5[:40], np.sin(X5[:40, 0])
    gp, model = by_products(X, y, approx=approx, every_probe=True, mean=pm.gp.mean.Constant(0.3))
    check_marginal_logp(gp, model, points=[near(model)], **FAST)
    assert gp.likelihood_path == "products"


@pytest.mark.slow
def test_products_of_a_sum_of_kernels():
    X, y = X5[:30, :3], np.sin(X5[:30, 0])
    gp, model = by_products(X, y, cov=two_terms, every_probe=True)
    check_marginal_logp(gp, model, points=[near(model)], **FAST)


def test_few_steps_and_probes_have_their_own_exact_gradient():
    _, model = by_products(X5[:50], np.sin(X5[:50, 0]), n_iter=6, probes=2, preconditioner=3)
    function = model.logp_dlogp_function(ravel_inputs=True, **FAST)
    function.set_extra_values({})
    x = np.concatenate([np.ravel(v) for v in near(model).values()])
    _, slope = function(x)
    direction = RNG.standard_normal(x.size)
    values = [function(x + h * direction)[0] for h in (-1e-5, 1e-5)]
    assert_allclose(slope @ direction, np.diff(values)[0] / 2e-5, rtol=1e-6)


def test_products_predict_what_the_features_predict():
    X, y, new = X5[:60], np.sin(X5[:60, 0]), X5[:7] * 0.8
    gp, model = by_products(X, y, preconditioner=30)
    point = {"ell": np.full(5, 1.2), "eta": 1.1, "sigma": 0.3}
    with pm.Model() as other:
        ell, eta = pm.InverseGamma("ell", 3, 3, shape=5), pm.HalfNormal("eta", 1)
        cov = eta**2 * pm.gp.cov.ExpQuad(5, ls=ell)
        features = sgp.SKIPMarginal(cov_func=cov, rank=5)
        features.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1))
    for diag in (True, False):
        found = gp.predict(new, point, diag=diag, model=model)
        expected = features.predict(new, point, diag=diag, model=other)
        assert_allclose(found[0], expected[0], atol=1e-7)
        assert_allclose(found[1], expected[1], atol=1e-7)
    given = {"X": X[:40], "y": y[:40], "sigma": 0.3}
    gp, model = by_products(X, y, n_iter=40, preconditioner=30)
    found = gp.predict(new, point, given=given, diag=True, model=model)
    expected = features.predict(new, point, given=given, diag=True, model=other)
    assert_allclose(found, expected, atol=1e-7)


def test_the_conditional_draws_what_predict_says():
    X, y, new = X5[:60, :2], np.sin(X5[:60, 0]), X5[:4, :2] * 0.8
    gp, model = by_products(X, y, preconditioner=25)
    with model:
        f = gp.conditional("f", new, jitter=0.0, shape=(20_000, 4))
    point = {"ell": np.full(2, 1.2), "eta": 1.1, "sigma": 0.3}
    mean, cov = gp.predict(new, point, model=model)
    draws = pm.draw(pm.do(model, point)[f.name], random_seed=0, **FAST)
    error = np.sqrt(np.diag(cov) / len(draws))
    assert (np.abs(draws.mean(axis=0) - mean) < 4 * error).all()
    assert_allclose(np.cov(draws.T), cov, atol=0.03 * np.diag(cov).max())


@pytest.mark.slow
def test_few_directions_overstate_the_variance():
    X, y = X5[:80, :3], np.sin(X5[:80, 0])
    point = {"ell": np.full(3, 0.7), "eta": 1.0, "sigma": 0.2}
    found = []
    for k in (1, 5, 20, 80):
        gp, model = by_products(X, y, n_iter=1, preconditioner=k)
        found.append(gp.predict(X[:20], point, diag=True, model=model)[1])
    assert (np.diff(found, axis=0) < 1e-9).all()
    assert found[0].max() < 1.0


def test_prior_draws_have_the_covariance():
    X = X5[:6, :3]
    gp, model = by_products(X, np.zeros(6), cov=two_terms)
    point = {"ell": np.full(3, 1.2), "eta": 1.1, "sigma": 0.3}
    fit = gp.training
    with model:
        fit.normal(fit.data.sigma**2).variable("draws", shape=(20_000, 6))
    draws = pm.draw(pm.do(model, point)["draws"], random_seed=0, **FAST)
    expected = gram(gp, X, point, model) + 0.09 * np.eye(6)
    expected += np.diag(2.21 + 0.09 - np.diag(expected))  # FITC: the prior's variance
    assert_allclose(np.cov(draws.T), expected, atol=0.08)


def test_a_better_preconditioner_leaves_less():
    X, y = X5[:150, :4], np.sin(X5[:150, 0])
    point = {"ell": np.full(4, 1.0), "eta": 1.0, "sigma": 0.1}
    left = []
    for k in (1, 10, 25):
        gp, model = by_products(X, y, n_iter=8, preconditioner=k, point=point)
        left.append(figures_at(gp, point, model)["residual"])
    assert left[0] > 3 * left[1] > 9 * left[2]


def test_products_refuse():
    X, y = X5[:20, :2], X5[:20, 2]
    with pytest.raises(ValueError, match="n_iter=21 exceeds the 20 rows"):
        by_products(X, y, n_iter=21)
    with pytest.raises(ValueError, match="probes must be at least 1"):
        by_products(X, y, probes=0)
    cov = pm.gp.cov.ExpQuad(2, ls=1.0)
    gp = sgp.SKIPMarginal(cov_func=cov, rank=5, n_iter=5)
    with pytest.raises(TypeError, match="GPs with n_iter do not add: add their kernels"):
        gp + sgp.SKIPMarginal(cov_func=cov, rank=5)
    for name, data in (("X", X), ("y", y)):
        with pm.Model(), pytest.raises(ValueError, match=r"not pm.Data"):
            gp.marginal_likelihood("z", **{"X": X, "y": y} | {name: pm.Data(name, data)}, sigma=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["NUMBA", "JAX"])
def test_products_in_every_back_end(mode):
    _, model = by_products(X5[:50], np.sin(X5[:50, 0]), n_iter=6, probes=2)
    x = np.concatenate([np.ravel(v) for v in near(model).values()])
    found = []
    for each in ("FAST_COMPILE", mode):
        function = model.logp_dlogp_function(ravel_inputs=True, mode=each)
        function.set_extra_values({})
        found.append(function(x))
    assert_allclose(found[1][0], found[0][0], rtol=1e-10)
    assert_allclose(found[1][1], found[0][1], rtol=1e-8)


@pytest.mark.parametrize("make", [
    lambda k: sgp.SKIPMarginal(cov_func=k, rank=5, grid_size=20),
    lambda k: sgp.VecchiaMarginal(cov_func=k, n_inducing=0, neighbors=3),
])  # fmt: skip
def test_a_build_where_the_kernel_is_not_finite(make):
    X = np.random.default_rng(0).uniform(0.0, 1.0, (30, 2))
    with pm.Model():
        gp = make(pm.gp.cov.ExpQuad(2, ls=pm.LogNormal("ell")))
        with pytest.raises(ValueError, match="not finite at the hyperparameters of the build: give build"):
            gp.build(X, point={"ell": 0.0}) if isinstance(gp, sgp.SKIPMarginal) else _at_zero(gp, X)


def _at_zero(gp, X):
    gp.build(X)
    gp.marginal_likelihood("y", X=X, y=X[:, 0], sigma=0.3)
    gp.rebuild({"ell": 0.0})
