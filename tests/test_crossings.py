"""Classes, kernels, means, noises and settings in all combinations, on a few rows.

A combination is refused in words, or its density is a number: that of dense algebra, in the class' own
features or, where the settings leave nothing out, of the kernel itself. Its gradient is that of
differences, other data give what other data are due, and variances are the covariance's diagonal.
"""

import traceback
import warnings
from dataclasses import dataclass, field

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from compared import dense_marginal
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from pymc.gp.cov import Covariance
from scipy.stats import multivariate_normal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.utils.compiled import IN_PYTHON

POINTS = 3  # of the hyperparameters, for each model


@dataclass
class Family:
    """How a class is made, and what its settings leave out."""

    make: object
    approximations: tuple = (None,)
    products: bool = False  # takes products of one-dimensional kernels only
    exact: object = field(default=lambda approx: False)
    latent: bool = False
    neighbors: bool = False
    series: bool = False  # of one input, with Markov kernels


def neighbors(approx, n):
    """All rows, where there are neighbours."""
    return {"approx": approx} | ({"neighbors": n, "block": 4} if approx == "VIF" else {})


CLASSES = {
    "exact": Family(lambda n, a, **k: sgp.ExactMarginal(**k), exact=lambda a: True),
    "series": Family(
        lambda n, a, **k: sgp.StateSpaceMarginal(**k), exact=lambda a: True, series=True
    ),
    "vecchia": Family(
        lambda n, a, **k: sgp.VecchiaMarginal(n_inducing=min(3, n - 1), neighbors=n, block=4, **k),
        exact=lambda a: True, neighbors=True,
    ),
    "neighbors": Family(
        lambda n, a, **k: sgp.VecchiaMarginal(n_inducing=0, neighbors=n, block=1, **k),
        exact=lambda a: True, neighbors=True,
    ),
    "cholqr": Family(
        lambda n, a, **k: sgp.CholQRMarginal(n_inducing=min(5, n - 1), **neighbors(a, n), **k),
        ("DTC", "FITC", "VFE", "VIF"),
        exact=lambda a: a == "VIF",
    ),
    "softki": Family(
        lambda n, a, **k: sgp.SoftKIMarginal(inducing=min(6, n), **neighbors(a, n), **k),
        ("DTC", "FITC", "VFE", "VIF"),
        exact=lambda a: a == "VIF",
    ),
    "kmcg": Family(
        lambda n, a, **k: sgp.KMCGMarginal(n_iter=min(6, n), probes=0, approx=a, **k),
        ("DTC", "FITC", "VFE"),
    ),
    "kmcg, all": Family(
        lambda n, a, **k: sgp.KMCGMarginal(n_iter=n, probes=0, approx=a, **k),
        ("DTC", "FITC", "VFE"), exact=lambda a: True,
    ),
    "grief": Family(
        lambda n, a, **k: sgp.GriefGP(grid=6, rank=12, **neighbors(a, n), **k),
        ("DTC", "FITC", "VFE", "VIF"), products=True, exact=lambda a: a == "VIF",
    ),
    "skip": Family(
        lambda n, a, **k: sgp.SKIPMarginal(grid_size=20, rank=5, **neighbors(a, n), **k),
        ("DTC", "FITC", "VFE", "VIF"), products=True, exact=lambda a: a == "VIF",
    ),
    "latent grief": Family(
        lambda n, a, **k: sgp.GriefGP(grid=6, rank=12, **k), products=True, latent=True
    ),
    "latent skip": Family(
        lambda n, a, **k: sgp.SKIPLatent(grid_size=20, rank=4, **k), products=True, latent=True
    ),
    "latent softki": Family(lambda n, a, **k: sgp.SoftKILatent(inducing=min(6, n), **k), latent=True),
    "latent vecchia": Family(
        lambda n, a, **k: sgp.VecchiaLatent(n_inducing=min(3, n - 1), neighbors=n, **k),
        latent=True, neighbors=True,
    ),
}  # fmt: skip
LEAVES = ("ExpQuad", "Matern52", "Matern32", "Matern12", "Exponential", "RatQuad", "Periodic", "Cosine",
          "Linear", "Polynomial", "Constant", "GreatCircle", "PerGroup")  # fmt: skip
MARKOV = ("Matern52", "Matern32", "Matern12", "Exponential", "Periodic", "Cosine", "Linear",
          "Constant")  # fmt: skip
OF_PRODUCTS = ("ExpQuad", "Product", "Product scaled", "factors", "sum of products")
MEANS = ("zero", "fixed", "constant", "linear")
SIGMAS = ("scalar", "rows", "number")


@dataclass
class Crossing:
    """One combination, and values of its hyperparameters (points, d + 3)."""

    kind: str
    approx: str | None
    kernel: tuple
    mean: str
    sigma: str
    d: int
    n: int
    data: int  # seed
    other: str | None = None  # class of a second part
    points: np.ndarray = field(repr=False, default=None)

    @property
    def families(self):
        return [CLASSES[kind] for kind in (self.kind, self.other) if kind]

    @property
    def exact(self):
        return all(family.exact(self.approx) for family in self.families)

    @property
    def latent(self):
        return CLASSES[self.kind].latent

    @property
    def neighbors(self):
        """Whether rows have neighbours, which are chosen once."""
        return self.approx == "VIF" or any(family.neighbors for family in self.families)


@st.composite
def kernels(draw, depth=2, leaves=LEAVES):
    """A leaf, or a sum, product, power or multiple of kernels."""
    form = draw(st.sampled_from(("leaf", "+", "*", "**", "scale", "scale")) if depth else st.just("leaf"))
    if form == "leaf":
        return (
            "leaf",
            draw(st.sampled_from(leaves)),
            draw(st.sampled_from(("all", "all", "first", "last"))),
        )
    if form in "+*":
        return (form, *(draw(kernels(depth - 1, leaves)) for _ in range(2)))
    return (form, draw(kernels(depth - 1, leaves)))


@st.composite
def crossings(draw, classes=tuple(CLASSES)):
    """Any combination."""
    kind = draw(st.sampled_from(classes))
    family = CLASSES[kind]
    approx = draw(st.sampled_from(family.approximations))
    # Among 2 n neighbours are then all rows, and all the new ones.
    sizes = (2, 7, 20) if not family.neighbors and approx != "VIF" else (7, 20)
    sizes = (*sizes, 40) if "kmcg" in kind else sizes  # whose basis runs out
    d, n = 1 if family.series else draw(st.integers(1, 3)), draw(st.sampled_from(sizes))
    parts = [k for k, f in CLASSES.items() if f.latent == family.latent and approx in f.approximations]
    other = draw(st.sampled_from(parts)) if draw(st.integers(0, 4)) == 0 else None
    products = family.products or (other and CLASSES[other].products)
    leaves = MARKOV if family.series else LEAVES
    some = kernels(leaves=leaves)
    kernel = ("of products", draw(st.sampled_from(OF_PRODUCTS))) if products else draw(some)
    found = Crossing(
        kind, approx, kernel, draw(st.sampled_from(MEANS)), draw(st.sampled_from(SIGMAS)), d, n,
        draw(st.integers(0, 10**6)), other,
    )  # fmt: skip
    found.points = np.random.default_rng(found.data + 1).uniform(-0.9, 0.9, (POINTS, d + 3))
    found.points[:, d + 1] -= 1.0
    return found


def covariance(form, d, ell, eta) -> Covariance:
    """Kernel of the description."""
    cov = pm.gp.cov
    if form[0] == "+":
        return covariance(form[1], d, ell, eta) + covariance(form[2], d, 0.7 * ell, 1.0)
    if form[0] == "*":
        return covariance(form[1], d, ell, eta) * covariance(form[2], d, 1.3 * ell, 1.0)
    if form[0] == "**":
        return covariance(form[1], d, ell, eta) ** 2
    if form[0] == "scale":
        return eta**2 * covariance(form[1], d, ell, eta)
    if form[0] == "of products":
        return product_kernel(form[1], d, ell, eta)
    dims = {"all": list(range(d)), "first": [0], "last": [d - 1]}[form[2]]
    dims = dims[:1] if form[1] == "Cosine" else dims  # of more inputs it is no covariance
    own = {"active_dims": dims}
    ls = ell[np.array(dims)]
    match form[1]:
        case "RatQuad":
            return cov.RatQuad(d, alpha=1.5, ls=ls, **own)
        case "Periodic":
            return cov.Periodic(d, period=1.7, ls=ls, **own)
        case "Linear":
            return cov.Linear(d, c=0.3, **own)
        case "Polynomial":
            return cov.Polynomial(d, c=0.3, d=2.0, offset=eta, **own)
        case "Constant":
            return cov.Constant(eta**2)
        case "GreatCircle":  # refused for one input
            return sgp.cov.GreatCircle(cov.Matern12, ls=100.0 * ell[0], input_dim=d)
        case "PerGroup":  # of the sign of the last input
            inner = sgp.cov.PerGroup(
                cov.Matern52, d + 1, ls=pt.stack([ell[0], 0.6]), scale=pt.stack([1.0, eta]),
                group_dim=d,
            )  # fmt: skip
            return cov.WarpedInput(d, inner, lambda x: pt.concatenate([x, 1.0 * (x[:, -1:] > 0)], 1))
        case name:
            return getattr(cov, name)(d, ls=ls, **own)


def product_kernel(name, d, ell, eta):
    """Kernels that every class takes."""
    cov = pm.gp.cov
    if name == "ExpQuad":
        return cov.ExpQuad(d, ls=ell)
    if name == "Product":
        return sgp.cov.Product(cov.Matern52, d, ls=ell)
    if name == "Product scaled":
        return eta**2 * sgp.cov.Product(cov.Matern32, d, ls=ell)
    if name == "factors":
        found = eta**2 * cov.Matern52(d, ls=ell[0], active_dims=[0])
        for i in range(1, d):
            found = found * cov.RatQuad(d, alpha=2.0, ls=ell[i], active_dims=[i])
        return found
    return cov.ExpQuad(d, ls=ell) + eta**2 * sgp.cov.Product(cov.Matern52, d, ls=0.5 * ell)


def mean_function(name, d, slope):
    """Mean with a free coefficient, or without."""
    mean = pm.gp.mean
    if name == "constant":
        return mean.Constant(slope)
    if name == "linear":
        return mean.Linear(coeffs=slope * np.ones(d), intercept=0.3)
    return {"zero": mean.Zero(), "fixed": mean.Constant(0.7)}[name]


def rows(case, n, seed):
    """Inputs whose range is always the same, targets and factors of the noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, case.d))
    X[0], X[-1] = -1.0, 1.0
    if n > 5 and case.data % 4 == 0:  # some rows twice
        X[2:5] = X[1:4]
    return {"X": X, "y": rng.standard_normal(n), "s": rng.uniform(0.5, 2.0, n)}


class Model:
    """GP and model of a combination, with compiled functions of the flat hyperparameters."""

    def __init__(self, case, data):
        d, n = case.d, case.n
        with pm.Model() as self.model:
            t = pm.Flat("t", shape=d + 3, initval=case.points[0])
            ell, eta = pt.exp(t[:d]), pt.exp(t[d])
            X, y, s = (pm.Data(name, value) for name, value in data.items())
            sigma = {"scalar": pt.exp(t[d + 1]), "rows": s * pt.exp(t[d + 1]), "number": 0.3}[case.sigma]
            cov = covariance(case.kernel, d, ell, eta)
            parts = [CLASSES[case.kind].make(
                n, case.approx, cov_func=cov, mean_func=mean_function(case.mean, d, t[d + 2])
            )]  # fmt: skip
            if case.other:
                small = 0.5 * pm.gp.cov.ExpQuad(d, ls=0.6)
                parts.append(CLASSES[case.other].make(n, case.approx, cov_func=small))
            self.gp = parts[0] if len(parts) == 1 else parts[0] + parts[1]
            if case.latent:
                pm.Normal("y_", self.gp.prior("f", X), sigma, observed=y)
            else:
                self.gp.marginal_likelihood("y_", X, y, sigma)
            noise = pt.as_tensor(sigma) ** 2 * pt.ones_like(y)
            truth = [self.gp.cov_func(X), self.gp.mean_func(X), noise, y]
            low_rank = not (case.exact or case.neighbors)
            features = self.gp.features(X) if low_rank else pt.zeros((n, 1))
        truth = self.model.replace_rvs_by_values([*truth, features])
        inputs = self.model.value_vars[:1]
        self.truth = pytensor.function(inputs, truth, mode=IN_PYTHON, on_unused_input="ignore")
        self.compile()

    def compile(self):
        """Density and gradient, of the data as they are now where their rows are summarised."""
        self.density = self.model.logp_dlogp_function(ravel_inputs=True, mode="FAST_COMPILE")

    def flat(self, values, rng):
        """Values of all free variables."""
        start = self.model.initial_point()
        point = {k: rng.standard_normal(np.shape(v)) for k, v in start.items()} | {"t": values}
        return point, np.concatenate([np.ravel(point[v.name]) for v in self.model.value_vars])


def refused(error) -> bool:
    """Whether the package said no, in words."""
    where = traceback.extract_tb(error.__traceback__)[-1].filename
    return isinstance(error, ValueError | TypeError) and (
        ("pymc_scalable_gp" in where and "/ops/" not in where) or "/pymc/gp/" in where
    )


def check(case):
    """All that holds of one combination; False where it was refused."""
    data = rows(case, case.n, case.data)
    try:
        fitted = Model(case, data)
    except (ValueError, TypeError) as error:
        if refused(error):
            return False
        raise
    check_points(case, fitted)
    check_predictions(case, fitted)
    with fitted.model:
        new = rows(case, case.n if case.neighbors else max(2, case.n - 3), case.data + 7)
        pm.set_data(new)
        if case.neighbors:
            fitted.gp.rebuild()
    if getattr(fitted.gp, "likelihood_path", None) in ("summarized", "rotated"):
        _, flat = fitted.flat(case.points[0], np.random.default_rng(0))
        with pytest.raises(ValueError, match="were replaced after it was compiled"):
            fitted.density(flat)
        fitted.compile()
    check_points(case, fitted)
    return True


def check_points(case, fitted):
    """Density and gradient at every point."""
    rng = np.random.default_rng(0)
    for values in case.points:
        _, flat = fitted.flat(values, rng)
        value, slope = fitted.density(flat)
        assert np.isfinite(value), f"density {value}"
        assert np.isfinite(slope).all(), f"gradient {slope}"
        expected, scale = dense(case, fitted, values)
        if expected is not None:
            assert_allclose(value, expected, rtol=1e-5, atol=1e-5 * scale, err_msg="density")
        along = rng.standard_normal(len(flat))
        ends = [[fitted.density(flat + s * h * along)[0] for s in (1, -1)] for h in (1e-5, 2e-5)]
        near, far = ((a - b) / (2.0 * h) for (a, b), h in zip(ends, (1e-5, 2e-5), strict=True))
        size = np.linalg.norm(slope) * np.linalg.norm(along) + 1e-9 * abs(value) / 1e-5
        if abs(near - far) < 1e-4 * size:
            assert abs(slope @ along - near) < 1e-3 * size, f"gradient {slope @ along}, not {near}"


def dense(case, fitted, values):
    """Log density by dense algebra, and a scale of what rounding does to it."""
    K, mean, noise, y, phi = fitted.truth(values)
    scale = len(y) + float(((y - mean) ** 2 / noise).sum())
    if case.latent:
        return None, scale
    if case.exact:
        K = K + np.diag(noise)
        return multivariate_normal(mean, K, allow_singular=True).logpdf(y), scale
    if case.approx == "VIF":
        return None, scale
    if case.approx == "VFE":
        # Its trace term counts what pm.gp's distances, sqrt(r^2 + 1e-12), take from Exponential's diagonal.
        scale += 0.1 * float((np.diag(K) / noise).sum())
    options = {"kdiag": np.diag(K), "approx": case.approx or "DTC"}
    return dense_marginal(phi, noise, y - mean, **options), scale


def check_predictions(case, fitted):
    """Numbers, no negative variance, and one mean and variance however they are asked for."""
    new = np.random.default_rng(case.data + 3).uniform(-0.9, 0.9, (4, case.d))
    gp, model = fitted.gp, fitted.model
    point, _ = fitted.flat(case.points[0], np.random.default_rng(0))
    mean, var = gp.predict(new, point, diag=True, model=model)
    joint, cov = gp.predict(new, point, model=model)
    assert np.isfinite([mean, var, joint, np.diag(cov)]).all(), (mean, var, joint, np.diag(cov))
    assert (var >= 0.0).all()
    sd = np.sqrt(np.diag(fitted.truth(case.points[0])[0]).max())
    assert_allclose(joint, mean, atol=1e-4 * (sd + np.abs(mean).max()), err_msg="mean, joint")
    assert_allclose(np.diag(cov), var, atol=1e-4 * sd**2, err_msg="variance, joint")


OPTIONS = {
    "deadline": None, "database": None, "derandomize": False,
    "suppress_health_check": list(HealthCheck), "print_blob": False, "phases": [Phase.generate],
}  # fmt: skip


def run(examples, start, record_property, classes=tuple(CLASSES)):
    """So many combinations; counted, as cases, with each of their points."""
    found = []

    @seed(start)
    @settings(max_examples=examples, **OPTIONS)
    @given(case=crossings(classes))
    def cases(case):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(check(case))

    cases()
    record_property("cases", POINTS * len(found))
    assert np.mean(found) > 0.3  # not all are refused


def test_crossings(record_property):
    run(6, 3, record_property, ("exact", "vecchia", "cholqr", "kmcg", "grief"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSES)
def test_many_crossings(kind, record_property):
    run(-(-2000 // (POINTS * len(CLASSES))), 2, record_property, (kind,))
