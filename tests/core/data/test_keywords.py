"""Keywords that users of `pm.gp` know: taken with its meaning, or refused in words before a build."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp

FAST = {"mode": "FAST_COMPILE"}
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (25, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(25)
COV = pm.gp.cov.ExpQuad(2, ls=0.8)

MARGINAL = {
    "GriefGP": lambda: sgp.GriefGP(cov_func=COV, grid=5, rank=12),
    "SoftKI": lambda: sgp.SoftKIMarginal(cov_func=COV, inducing=X[:9]),
    "KMCG": lambda: sgp.KMCGMarginal(cov_func=COV, n_iter=12),
    "CholQR": lambda: sgp.CholQRMarginal(cov_func=COV, n_inducing=9),
    "SKIP": lambda: sgp.SKIPMarginal(cov_func=COV, grid_size=30, rank=6),
}
LATENT = {
    "GriefGP": MARGINAL["GriefGP"],
    "SoftKI": lambda: sgp.SoftKILatent(cov_func=COV, inducing=X[:9]),
    "SKIP": lambda: sgp.SKIPLatent(cov_func=COV, grid_size=30, rank=6),
}

pytestmark = pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")


def marginal(gp, sigma=0.3, **kwargs):
    """Log density of the targets."""
    with pm.Model() as model:
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma, **kwargs)
    return float(model.compile_fn(model.logp(), inputs=[], **FAST)({}))


@pytest.mark.parametrize("method", MARGINAL)
def test_jitter_adds_to_the_variance_of_the_targets(method):
    """As `pm.gp.Marginal` adds it to the diagonal of their covariance."""
    assert_allclose(
        marginal(MARGINAL[method](), jitter=0.07, is_observed=True),
        marginal(MARGINAL[method](), sigma=np.sqrt(0.3**2 + 0.07)),
        rtol=1e-10,
    )
    if method == "GriefGP":
        assert abs(marginal(MARGINAL[method]()) - marginal(MARGINAL[method](), jitter=0.07)) > 0.1


@pytest.mark.parametrize("method", MARGINAL)
@pytest.mark.parametrize(
    ("keyword", "value", "match"),
    [
        ("is_observed", False, r"takes no is_observed=False: y is observed.* gp\.prior\(name, X\)"),
        ("noise", 0.1, "takes no noise=: .* as sigma="),
        ("observed", Y, "takes no observed=: give the observations as y="),
        ("Xu", X[:4], "takes no Xu=: inducing points .* SoftKIMarginal"),
        ("smoothing", 1, r"marginal_likelihood takes no smoothing=; it knows dims, shape"),
    ],
)
def test_a_likelihood_refuses_in_words_before_anything_is_built(method, keyword, value, match):
    if method == "SoftKI" and keyword == "Xu":
        return
    gp = MARGINAL[method]()
    with pm.Model() as model, pytest.raises(TypeError, match=match):
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3, **{keyword: value})
    assert not model.basic_RVs
    assert not gp.is_built


@pytest.mark.parametrize("jitter", [-1e-6, np.nan, "1e-6", True, None])
def test_jitter_is_a_number_above_zero(jitter):
    with pm.Model(), pytest.raises(ValueError, match="jitter must be a number, zero or more, got"):
        MARGINAL["GriefGP"]().marginal_likelihood("y", X=X, y=Y, sigma=0.3, jitter=jitter)


@pytest.mark.parametrize("method", LATENT)
@pytest.mark.parametrize(
    ("keyword", "value", "match"),
    [
        ("reparameterize", False, "takes no reparameterize=False: the coefficients"),
        ("n_outputs", 2, "takes no n_outputs=2: make a GP for each output"),
        ("jitter", 1e-6, "takes no jitter=: the features are not factorised"),
        ("observed", Y, "takes no observed=: write the likelihood of f"),
        ("sigma", 0.1, "takes no sigma=: write the likelihood of f"),
        ("Xu", X[:4], "takes no Xu=: inducing points .* SoftKILatent"),
        ("shape", 25, "prior takes no shape=; it knows dims"),
    ],
)
def test_a_prior_refuses_in_words_before_anything_is_built(method, keyword, value, match):
    if method == "SoftKI" and keyword == "Xu":
        return
    gp = LATENT[method]()
    with pm.Model() as model, pytest.raises(TypeError, match=match):
        gp.prior("f", X, **{keyword: value})
    assert not model.basic_RVs
    assert not gp.is_built


@pytest.mark.parametrize("method", LATENT)
def test_a_prior_takes_the_defaults_of_pm_gp(method):
    with pm.Model(coords={"row": range(25)}) as model:
        LATENT[method]().prior("f", X, reparameterize=True, n_outputs=1, dims="row")
    assert model.named_vars_to_dims["f"] == ("row",)


@pytest.mark.parametrize(
    ("keyword", "match"),
    [
        ("noise", "takes no noise=: pred_noise=True adds"),
        ("sigma", r"takes no sigma=: give training data.* given="),
        ("Xu", "takes no Xu=: the points are those of the likelihood"),
        ("diag", "takes no diag=: .*gp.predict"),
        ("is_observed", "takes no is_observed="),
        ("smoothing", "GriefGP.conditional takes no smoothing=; it knows dims, .*observed"),
    ],
)
def test_a_conditional_refuses_in_words(keyword, match):
    gp = MARGINAL["GriefGP"]()
    with pm.Model() as model:
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
        with pytest.raises(TypeError, match=match):
            gp.conditional("f", X[:3], **{keyword: True})
    assert "f" not in model.named_vars


def test_what_a_distribution_takes_is_passed_on():
    gp = MARGINAL["GriefGP"]()
    with pm.Model(coords={"new": range(3)}) as model:
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3, total_size=50)
        gp.conditional("f", X[:3], dims="new", initval=np.ones(3))
    assert_allclose(model.initial_point(0)["f"], 1.0)
    logp = model.compile_fn(model.logp(vars=[model["y"]]), inputs=[], on_unused_input="ignore", **FAST)
    assert_allclose(logp({}), 2.0 * marginal(gp), rtol=1e-10)


def test_low_rank_normal_names_what_it_does_not_know():
    with pytest.raises(TypeError, match=r"LowRankNormal takes no jitter=; it knows shape, size"):
        sgp.LowRankNormal.dist(0.0, X, 0.1, jitter=1e-6)
    with pytest.raises(TypeError, match="LowRankNormal takes no noise=: give sigma="):
        sgp.LowRankNormal.dist(0.0, X, 0.1, noise=0.1)
