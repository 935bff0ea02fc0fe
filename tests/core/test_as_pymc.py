"""What PyMC's own tests ask of ``pm.gp``, asked of these classes, with ``pm.gp`` beside them."""

import numpy as np
import pymc as pm
import pytest
from compared import draw_many
from marks import often
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.utils.compiled import evaluate

N, D, SIGMA = 25, 3, 0.1
RNG = np.random.default_rng(20)
X = RNG.standard_normal((N, D))
Y = RNG.standard_normal(N)
XNEW = X[:6] + 0.2 * RNG.standard_normal((6, D))
FAST = {"mode": "FAST_COMPILE"}
LENGTHS = (np.array([0.6, 0.9, 1.3]), np.array([0.4, 1.8, 0.7]), np.array([1.1, 0.5, 2.0]))
COVS = [scale * pm.gp.cov.ExpQuad(D, ls) for scale, ls in zip((1.0, 0.5, 0.2), LENGTHS, strict=True)]
MEANS = [pm.gp.mean.Constant(0.5), pm.gp.mean.Linear(np.array([0.1, 0.2, -0.3]), 0.4),
         pm.gp.mean.Constant(-0.2)]  # fmt: skip

X[-1] = 50.0  # no kernel reaches it: features of the other rows give exact means and variances

# With all rows as neighbours, or as inducing points, nothing is left out.
VIF = {"approx": "VIF", "neighbors": N}
EXACT = {
    "exact": (sgp.ExactMarginal, {}),
    "vecchia": (sgp.VecchiaMarginal, {"n_inducing": 5, "neighbors": N}),
    "points": (sgp.CholQRMarginal, {"n_inducing": N - 1, "approx": "FITC"}),
    "cholqr": (sgp.CholQRMarginal, {"n_inducing": 5, **VIF}),
    "softki": (sgp.SoftKIMarginal, {"inducing": 5, **VIF}),
    "grief": (sgp.GriefGP, {"grid": 4, "rank": 10, **VIF}),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone"),
    pytest.mark.filterwarnings("ignore:the features do not explain"),
]


def built(gp):
    """With all rows but the last as inducing points, where these are chosen among the rows."""
    if isinstance(gp, sgp.CholQRMarginal) and gp.approx == "FITC":
        gp.build(X, indices=np.arange(N - 1))
    return gp


def summed(kind, options):
    """Three GPs, and their sum."""
    pairs = zip(MEANS, COVS, strict=True)
    parts = [built(kind(mean_func=m, cov_func=c, **options)) for m, c in pairs]
    return parts, parts[0] + parts[1] + parts[2]


def whole(kind, options):
    """One GP with the sums of means and kernels."""
    mean, cov = MEANS[0] + MEANS[1] + MEANS[2], COVS[0] + COVS[1] + COVS[2]
    return built(kind(mean_func=mean, cov_func=cov, **options))


def dense(places=(0, 1, 2), y=Y, new=XNEW):
    """Mean and covariance at new rows of the sum of some of the parts, given data of all."""
    K = sum(c(X).eval() for c in COVS) + SIGMA**2 * np.eye(N)
    cross = sum(COVS[k](new, X).eval() for k in places)
    mean = sum(MEANS[k](new).eval() for k in places)
    mean = mean + cross @ np.linalg.solve(K, y - sum(m(X).eval() for m in MEANS))
    cov = sum(COVS[k](new).eval() for k in places) - cross @ np.linalg.solve(K, cross.T)
    return mean, cov


def close(found, expected, tol=1e-4):
    for a, b in zip(found, expected, strict=True):
        assert_allclose(a, b, rtol=tol, atol=tol)


@pytest.fixture(scope="module")
def density():
    """Of the sum of three ``pm.gp.Marginal``."""
    with pm.Model() as model:
        summed(pm.gp.Marginal, {})[1].marginal_likelihood("y", X=X, y=Y, sigma=SIGMA)
    return float(model.compile_logp(**FAST)({}))


# -- additive, marginal -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "make"),
    [(kind, whole) for kind in EXACT]
    + [(kind, lambda k, o: summed(k, o)[1]) for kind in ("exact", "points", "vecchia")]
    + [
        pytest.param(kind, lambda k, o: summed(k, o)[1], marks=pytest.mark.slow)
        for kind in ("cholqr", "grief")
    ],
)
def test_a_sum_is_the_gp_of_the_sums(kind, make, density):
    """The kernels' sum in one GP, and the sum of three GPs."""
    with pm.Model() as model:
        gp = make(*EXACT[kind])
        gp.marginal_likelihood("y", X=X, y=Y, sigma=SIGMA)
    assert_allclose(float(model.compile_logp(**FAST)({})), density, rtol=1e-4)
    mean, cov = dense()
    if kind != "points":  # what features miss is held independent from row to row
        close(gp.predict(XNEW, {}, model=model), (mean, cov))
    noisy = gp.predict(XNEW, {}, diag=True, pred_noise=True, model=model)
    close(noisy, (mean, np.diag(cov) + SIGMA**2))


@pytest.mark.parametrize(
    ("kind", "tol"),
    [
        ("points", 1e-4),
        ("exact", 1e-9),
        ("vecchia", 1e-6),
        *(pytest.param(kind, 1e-6, marks=pytest.mark.slow) for kind in ("cholqr", "grief")),
    ],
)
def test_parts_of_a_sum_with_given(kind, tol):
    """``given={"gp": total}``, with and without data beside it, and with other data."""
    with pm.Model() as model:
        parts, total = summed(*EXACT[kind])
        total.marginal_likelihood("y", X=X, y=Y, sigma=SIGMA)
    data = {"X": X, "y": Y, "sigma": SIGMA, "gp": total}
    other = data | {"y": 2.0 * Y}

    def check(gp, given, places, y=Y):
        mean, cov = dense(places, y)
        found = gp.predict(XNEW, {}, diag=True, given=given, model=model)
        close(found, (mean, np.diag(cov)), tol)
        if kind != "points":
            close(gp.predict(XNEW, {}, given=given, model=model), (mean, cov), tol)

    check(parts[1], {"gp": total}, [1])
    check(parts[1], data, [1])
    check(parts[0] + parts[2], {"gp": total}, [0, 2])
    check(parts[0], other, [0], 2.0 * Y)
    check(total, other, [0, 1, 2], 2.0 * Y)


@pytest.mark.parametrize("approx", often(["FITC", "VFE", "DTC"], "FITC", "VFE"))
def test_a_sum_at_the_same_points_is_no_less_than_one(approx):
    """Features of each part at m points are those of the sum's kernel at them, or more."""
    Z = X[::4]
    options = {"inducing": Z, "approx": approx, "temperature": 1e-4}
    logps, errors = [], []
    exact = COVS[0](X).eval() + COVS[1](X).eval() + COVS[2](X).eval()
    for make in (
        lambda: summed(sgp.SoftKIMarginal, options)[1],
        lambda: whole(sgp.SoftKIMarginal, options),
    ):
        with pm.Model() as model:
            gp = make()
            gp.marginal_likelihood("y", X=X, y=Y, sigma=SIGMA)
        phi = gp.features(X).eval()
        low = phi @ phi.T
        missed = np.maximum(np.diag(exact) - np.diag(low), 0.0)
        noise = SIGMA**2 + missed * (approx == "FITC")
        mean = sum(m(X).eval() for m in MEANS)
        expected = multivariate_normal(mean, low + np.diag(np.broadcast_to(noise, N))).logpdf(Y)
        expected -= (approx == "VFE") * 0.5 * missed.sum() / SIGMA**2
        logps.append(float(model.compile_logp(**FAST)({})))
        assert_allclose(logps[-1], expected, rtol=1e-6)
        errors.append(np.abs(exact - low).max())
    assert gp.rank == len(Z)
    assert errors[0] < errors[1] + 1e-3


@pytest.mark.parametrize("kind", ["points", "exact", "vecchia"])
def test_the_conditional_of_a_sum_is_that_of_its_predictions(kind):
    with pm.Model() as model:
        parts, total = summed(*EXACT[kind])
        total.marginal_likelihood("y", X=X, y=Y, sigma=SIGMA)
        total.conditional("f", XNEW, given={"X": X, "y": Y, "sigma": SIGMA, "gp": total})
        parts[0].conditional("part", XNEW, given={"gp": total})
    for name, (mean, cov) in {"f": dense(), "part": dense([0])}.items():
        drawn, sd = draw_many(model[name], 4000, 3), np.sqrt(np.diag(cov))
        assert_allclose((drawn.mean(axis=0) - mean) / sd, 0.0, atol=0.07)
        assert_allclose(drawn.std(axis=0) / sd, 1.0, atol=0.05)


# -- additive, latent -------------------------------------------------------------------------------

LATENT = {
    "grief": (sgp.GriefGP, {"grid": 5, "rank": 20}),
    "softki": (sgp.SoftKILatent, {"inducing": 12}),
    "vecchia": (sgp.VecchiaLatent, {"n_inducing": 5, "neighbors": N}),
}


def prior_covariance(kind, options, make):
    """Mean (n,) and covariance (n, n) of the function, which is linear in normal coefficients; the GP."""
    with pm.Model() as model:
        gp = make(kind, options)
        f = gp.prior("f", X)
    free = model.free_RVs
    sizes = [int(np.prod(v.shape.eval())) for v in free]
    function = model.compile_fn(f, inputs=free, point_fn=False, **FAST)
    zero = [np.zeros(size) for size in sizes]
    mean, columns = function(*zero), []
    for k, size in enumerate(sizes):
        for i in range(size):
            at = [z.copy() for z in zero]
            at[k][i] = 1.0
            columns.append(function(*at) - mean)
    root = np.array(columns).T
    return mean, root @ root.T, gp


@pytest.mark.parametrize("kind", ["grief", "softki"])
def test_a_latent_sum_has_the_sum_of_the_parts_covariances(kind):
    cls, options = LATENT[kind]
    mean, cov, total = prior_covariance(cls, options, lambda k, o: summed(k, o)[1])
    assert_allclose(mean, sum(m(X).eval() for m in MEANS), rtol=1e-9)
    expected = sum(evaluate([part.features(X) @ part.features(X).T])[0] for part in total.parts)
    assert_allclose(cov, expected, rtol=1e-8, atol=1e-8)


def test_a_latent_function_with_all_neighbors_is_the_kernels():
    cls, options = LATENT["vecchia"]
    mean, cov, _ = prior_covariance(cls, options, whole)
    assert_allclose(mean, sum(m(X).eval() for m in MEANS), rtol=1e-9)
    assert_allclose(cov, sum(c(X).eval() for c in COVS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["grief", "softki"])
def test_parts_of_a_latent_sum(kind):
    """The parts' predictions, each given the sum, add up to the sum's."""
    cls, options = LATENT[kind]
    with pm.Model() as model:
        parts, total = summed(cls, options)
        f = total.prior("f", X)
        pm.Normal("y", f, SIGMA, observed=Y)
    name = next(v.name for v in model.free_RVs)
    point = {name: RNG.standard_normal(total.rank)}
    mean, var = total.predict(XNEW, point, diag=True, model=model)
    each = [p.predict(XNEW, point, diag=True, given={"gp": total}, model=model) for p in parts]
    assert_allclose(sum(m for m, _ in each), mean, rtol=1e-8)
    assert_allclose(sum(v for _, v in each), var, rtol=1e-8, atol=1e-12)


# -- marginal against latent ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["grief", "softki"])
def test_the_marginal_density_is_the_latent_one_integrated(kind):
    """A Gaussian integral over the coefficients: the joint density at its mode, and a Hessian."""
    cls, options = LATENT[kind]
    marginal = {"grief": sgp.GriefGP, "softki": sgp.SoftKIMarginal}[kind]
    options = options | ({"inducing": X[::2]} if kind == "softki" else {})
    with pm.Model() as latent:
        gp = cls(mean_func=MEANS[1], cov_func=COVS[0], **options)
        pm.Normal("y", gp.prior("f", X), SIGMA, observed=Y)
    with pm.Model() as model:
        other = marginal(mean_func=MEANS[1], cov_func=COVS[0], approx="DTC", **options)
        other.marginal_likelihood("y", X, Y, SIGMA)
    phi = gp.features(X).eval()
    inner = phi.T @ phi / SIGMA**2 + np.eye(gp.rank)
    best = np.linalg.solve(inner, phi.T @ (Y - MEANS[1](X).eval()) / SIGMA**2)
    (value,) = latent.value_vars
    joint = float(latent.compile_logp(**FAST)({value.name: best}))
    laplace = joint + 0.5 * gp.rank * np.log(2.0 * np.pi) - 0.5 * np.linalg.slogdet(inner)[1]
    assert_allclose(float(model.compile_logp(**FAST)({})), laplace, rtol=1e-7)
    mean, _ = gp.predict(XNEW, {value.name: best}, diag=True, model=latent)
    assert_allclose(mean, other.predict(XNEW, {}, diag=True, model=model)[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", [kind for kind in EXACT if kind != "points"])
def test_without_noise_the_function_goes_through_the_targets(kind):
    cls, options = EXACT[kind]
    with pm.Model() as model:
        gp = cls(mean_func=MEANS[0], cov_func=COVS[0], **options)
        gp.marginal_likelihood("y", X, Y, 1e-3)
    mean, var = gp.predict(X, {}, diag=True, model=model)
    assert_allclose(mean, Y, atol=1e-2)
    assert (var < 1e-4).all()


def test_shapes_of_latent_functions():
    for cls, options in LATENT.values():
        with pm.Model():
            gp = cls(cov_func=COVS[0], **options)
            f, new = gp.prior("f", X), gp.conditional("new", XNEW)
        assert tuple(f.shape.eval()) == (N,)
        assert tuple(new.shape.eval()) == (6,)


# -- misuse -----------------------------------------------------------------------------------------


def test_sums_that_pymc_refuses_are_refused():
    cov = COVS[0]
    pairs = [
        (sgp.SoftKIMarginal(cov_func=cov, approx="DTC"), sgp.SoftKIMarginal(cov_func=cov, approx="FITC")),
        (sgp.GriefGP(cov_func=cov, approx="VFE"), sgp.CholQRMarginal(cov_func=cov, approx="DTC")),
        (sgp.SoftKILatent(cov_func=cov), sgp.SoftKIMarginal(cov_func=cov)),
        (sgp.SKIPLatent(cov_func=cov), sgp.VecchiaMarginal(cov_func=cov)),
        (sgp.SoftKIMarginal(cov_func=cov), pm.gp.Marginal(cov_func=cov)),
        (sgp.SoftKILatent(cov_func=cov), pm.gp.Latent(cov_func=cov)),
        (sgp.SoftKIMarginal(cov_func=cov), cov),
    ]  # fmt: skip
    for one, two in pairs:
        with pytest.raises(TypeError, match="cannot add"):
            one + two
    for other in (sgp.VecchiaMarginal(cov_func=cov), sgp.SoftKIMarginal(cov_func=cov)):
        with pytest.raises(TypeError, match="cannot add"):
            sgp.ExactMarginal(cov_func=cov) + other


def test_what_belongs_to_the_other_front_end_is_refused():
    marginal, latent = sgp.SoftKIMarginal(cov_func=COVS[0]), sgp.SoftKILatent(cov_func=COVS[0])
    with pm.Model():
        with pytest.raises((NotImplementedError, TypeError), match="marginal_likelihood"):
            marginal.prior("f", X)
        with pytest.raises((NotImplementedError, TypeError), match="prior"):
            latent.marginal_likelihood("y", X, Y, SIGMA)
    with pytest.raises(TypeError):
        sgp.SoftKIMarginal(MEANS[0], COVS[0])  # keywords only, as in pm.gp


def test_a_stranger_as_the_given_sum_is_refused():
    with pm.Model() as model:
        parts, total = summed(sgp.SoftKIMarginal, {"inducing": 5})
        total.marginal_likelihood("y", X, Y, SIGMA)
        stranger = sgp.ExactMarginal(cov_func=COVS[0])
        with pytest.raises(ValueError, match="a sum that this GP is a part of"):
            stranger.predict(XNEW, {}, given={"gp": total}, model=model)
        for gp in (parts[0], stranger):
            with pytest.raises(ValueError, match="has no data yet"):
                gp.conditional("f", XNEW)
