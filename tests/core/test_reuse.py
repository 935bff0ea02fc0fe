"""One GP used for several sets of rows: a likelihood or prior is never made of features of other rows."""

import numpy as np
import pymc as pm
import pytest
from marks import often
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp

rng = np.random.default_rng(5)
X = np.sort(rng.uniform(0.0, 1.0, (30, 1)), axis=0)
y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(30)
X_NEW = np.linspace(0.0, 1.0, 5)[:, None]
KERNEL = pm.gp.cov.Matern52(1, ls=0.3)

MAKERS = {
    "grief": lambda: sgp.GriefGP(cov_func=KERNEL, rank=12),
    "grief-dtc": lambda: sgp.GriefGP(cov_func=KERNEL, rank=12, approx="DTC"),
    "skip": lambda: sgp.SKIPMarginal(cov_func=KERNEL, rank=12),
    "softki": lambda: sgp.SoftKIMarginal(cov_func=KERNEL, inducing=12),
    "cholqr": lambda: sgp.CholQRMarginal(cov_func=KERNEL, n_inducing=12),
    "vecchia": lambda: sgp.VecchiaMarginal(cov_func=KERNEL, n_inducing=5, neighbors=5),
    "sum": lambda: sgp.GriefGP(cov_func=KERNEL, rank=12) + sgp.SKIPMarginal(cov_func=KERNEL, rank=12),
    "kmcg": lambda: sgp.KMCGMarginal(cov_func=KERNEL, n_iter=12),
}


def logp(gp, X, y=y):
    with pm.Model() as model:
        gp.marginal_likelihood("y", X, y, 0.2)
    return float(model.compile_logp()({}))


@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize("case", often(MAKERS, "grief", "cholqr", "sum"))
def test_a_new_likelihood_of_other_rows_has_features_of_its_own(case):
    gp = MAKERS[case]()
    logp(gp, X)
    for rows, targets in ((X + 10.0, y), (X[:20], y[:20]), (X, y)):
        assert_allclose(logp(gp, rows, targets), logp(MAKERS[case](), rows, targets), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize("case", often([case for case in MAKERS if case != "kmcg"], "grief-dtc"))
def test_a_check_of_features_is_no_build_of_the_user(case):
    """A likelihood of other rows was refused, as if they were not those of the build."""
    gp = MAKERS[case]()
    with pm.Model():
        gp.check({}, X=0.3 * X, progressbar=False)
    assert gp.is_built_unasked
    assert_allclose(logp(gp, X), logp(MAKERS[case](), X), rtol=1e-12)


def test_given_data_leave_the_features_as_they_are():
    """Under any likelihood they were built again, on the rows that were given."""
    gp = MAKERS["grief"]()
    with pm.Model():
        gp.marginal_likelihood(
            "y", X, np.round(3.0 + y), likelihood=lambda f: pm.Poisson.dist(pm.math.exp(f))
        )
        before = gp.features(X).eval()
        gp.predict(X_NEW, {}, diag=True, given={"X": 0.5 * X[:20], "y": y[:20], "sigma": 0.1})
        assert_allclose(gp.features(X).eval(), before, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_given_data_go_by_the_features_and_weights_of_the_prior(weighted):
    """Features were built again, on the rows that were given, and weights were those of a new GP."""
    with pm.Model():
        gp = sgp.GriefGP(cov_func=KERNEL, rank=12)
        weights = np.linspace(0.2, 2.0, gp.build(X)) if weighted else None
        if not weighted:
            gp = sgp.GriefGP(cov_func=KERNEL, rank=12)
        gp.prior("f", X, weights=weights)
        phi, new = gp.features(X[:20]).eval(), gp.features(X_NEW).eval()
        found, _ = gp.predict(X_NEW, {}, diag=True, given={"X": X[:20], "y": y[:20], "sigma": 0.1})
    scaled = phi * (1.0 if weights is None else weights)
    missed = 0.0 if weighted else gp.feature_map.kernel_diag(X[:20]).eval() - (phi**2).sum(axis=1)
    K = scaled @ phi.T + np.diag(0.01 + missed * np.ones(20))
    assert_allclose(found, new @ scaled.T @ np.linalg.solve(K, y[:20]), rtol=1e-8, atol=1e-10)
    assert_allclose(gp.features(X_NEW).eval(), new, rtol=1e-12)


def test_rows_changed_in_place_are_other_rows():
    gp, rows = MAKERS["grief"](), X.copy()
    logp(gp, rows)
    rows += 10.0
    assert_allclose(logp(gp, rows), logp(MAKERS["grief"](), X + 10.0), rtol=1e-12)


def test_a_new_prior_of_other_rows_has_features_of_its_own():
    def values(gp, X):
        with pm.Model() as model:
            f = gp.prior("f", X)
        return model.compile_fn(f, inputs=[model["f_coeffs"]], point_fn=False)(np.ones(gp.rank))

    gp = sgp.GriefGP(cov_func=KERNEL, rank=12)
    values(gp, X)
    fresh = sgp.GriefGP(cov_func=KERNEL, rank=12)
    assert_allclose(values(gp, X + 10.0), values(fresh, X + 10.0), rtol=1e-12)


@pytest.mark.parametrize("case", ["grief", "grief-dtc", "skip", "softki", "cholqr", "sum"])
def test_a_build_of_other_rows_is_refused_in_words(case):
    """What a user built is kept: with the same range it serves a sample's whole, elsewhere nothing."""
    gp = MAKERS[case]()
    gp.build(X[::-1][:29])
    rank = gp.rank
    logp(gp, X)
    assert gp.rank == rank
    with pytest.raises(ValueError, match=r"was built on.*call gp\.build\(X\)"):
        logp(gp, X + 10.0)
    gp.build(X + 10.0)
    logp(gp, X + 10.0)


def test_a_prior_beyond_the_build_is_refused_in_words():
    gp = sgp.SoftKILatent(cov_func=KERNEL, inducing=12)
    gp.build(X)
    with pm.Model(), pytest.raises(ValueError, match=r"was built on.*call gp\.build\(X\)"):
        gp.prior("f", X + 10.0)


def test_a_build_of_the_user_after_a_likelihood_stays():
    gp, asked = MAKERS["grief"](), MAKERS["grief"]()
    logp(gp, X)
    for each in (gp, asked):
        each.build(X)
    assert not gp.is_built_unasked
    assert_allclose(logp(gp, X[:20], y[:20]), logp(asked, X[:20], y[:20]), rtol=1e-12)


def test_neighbours_keep_what_inducing_points_elsewhere_miss():
    gp = MAKERS["vecchia"]()
    gp.build(X)
    with pm.Model() as model:
        gp.marginal_likelihood("y", X + 10.0, y, 0.2)
    assert_allclose(float(model.compile_logp()({})), logp(MAKERS["vecchia"](), X), atol=0.5)


def test_neighbours_of_a_sum_keep_it_too():
    """All rows are neighbours."""
    first, second = (sgp.VecchiaMarginal(cov_func=KERNEL, n_inducing=5, neighbors=30) for _ in range(2))
    total = first + second
    total.build(X)
    assert_allclose(logp(total, X + 10.0), logp(sgp.ExactMarginal(cov_func=KERNEL + KERNEL), X), rtol=1e-5)


def test_features_by_hand_keep_their_build():
    gp = sgp.GriefGP(cov_func=KERNEL, rank=12)
    first = gp.features(X)
    gp.features(X + 10.0)
    assert_allclose(gp.features(X).eval(), first.eval())
    with pytest.raises(ValueError, match="was built on"):
        logp(gp, X + 10.0)


def test_given_rows_beyond_the_build_are_refused_in_words():
    gp = MAKERS["grief"]()
    with pm.Model():
        gp.marginal_likelihood("y", X, y, 0.2)
        with pytest.raises(ValueError, match="was built on"):
            gp.predict(X_NEW, {}, given={"X": X + 10.0, "y": y, "sigma": 0.2})


@pytest.mark.parametrize("kind", [sgp.ExactMarginal, sgp.VecchiaMarginal])
def test_given_rows_anywhere_where_the_likelihood_keeps_all_variance(kind):
    options = {} if kind is sgp.ExactMarginal else {"n_inducing": 5, "neighbors": 20}
    gp, far = kind(cov_func=KERNEL, **options), {"X": X[:20] + 10.0, "y": y[:20], "sigma": 0.2}
    exact = sgp.ExactMarginal(cov_func=KERNEL)
    with pm.Model() as model:
        gp.marginal_likelihood("y", X, y, 0.2)
        exact.marginal_likelihood("far", **far)
    found = gp.predict(X_NEW + 10.0, {}, diag=True, given=far, model=model)
    expected = exact.predict(X_NEW + 10.0, {}, diag=True, model=model)
    for each, wanted in zip(found, expected, strict=True):
        assert_allclose(each, wanted, rtol=1e-5)


def test_rows_a_little_beyond_the_build_have_no_warning():
    """Of rows that replaced others: none did."""
    gp = sgp.SoftKIMarginal(cov_func=KERNEL, inducing=12)
    gp.build(X[1:-1])
    logp(gp, X)
    assert gp.likelihood_path == "summarized"
