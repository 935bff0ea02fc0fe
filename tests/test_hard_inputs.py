"""Any data, any kernel, any hyperparameters: a density, its gradient and predictions, or no number.

Never an exception, never a negative variance, and a gradient that is right wherever differences
resolve it.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import pymc_scalable_gp as sgp

# Above this ratio of the function's sd to the noise's the residual of a fit, which the gradient is made
# of, is rounding error: it is known to 1e-16 of the targets, and is (sigma / eta)^2 of them.
LARGEST = 1e5

CLASSES = {
    "exact": lambda cov, n: sgp.ExactMarginal(cov_func=cov),
    "series": lambda cov, n: sgp.StateSpaceMarginal(cov_func=cov),
    "vecchia": lambda cov, n: sgp.VecchiaMarginal(cov_func=cov, n_inducing=4, neighbors=3, block=4),
    "cholqr": lambda cov, n: sgp.CholQRMarginal(cov_func=cov, n_inducing=min(5, n - 1)),
    "cholqr VIF": lambda cov, n: sgp.CholQRMarginal(
        cov_func=cov, n_inducing=min(5, n - 1), approx="VIF", neighbors=3, block=4
    ),
    "softki": lambda cov, n: sgp.SoftKIMarginal(cov_func=cov),
    "softki FITC": lambda cov, n: sgp.SoftKIMarginal(cov_func=cov, approx="FITC"),
    "kmcg": lambda cov, n: sgp.KMCGMarginal(cov_func=cov, n_iter=min(5, n)),
    "grief": lambda cov, n: sgp.GriefGP(cov_func=cov, grid=6, rank=12),
    "grief VFE": lambda cov, n: sgp.GriefGP(cov_func=cov, grid=6, rank=12, approx="VFE"),
    "skip": lambda cov, n: sgp.SKIPMarginal(cov_func=cov, grid_size=12, rank=4),
    "latent vecchia": lambda cov, n: sgp.VecchiaLatent(cov_func=cov, n_inducing=4, neighbors=3),
    "latent grief": lambda cov, n: sgp.GriefGP(cov_func=cov, grid=6, rank=12),
    "latent skip": lambda cov, n: sgp.SKIPLatent(cov_func=cov, grid_size=12, rank=4),
    "latent softki": lambda cov, n: sgp.SoftKILatent(cov_func=cov),
    "grief frozen": lambda cov, n: sgp.GriefGP(cov_func=cov, grid=6, rank=12, basis="frozen"),
    "grief weights": lambda cov, n: sgp.GriefGP(cov_func=cov, grid=6, rank=12),
    "grief weights, rotated": lambda cov, n: sgp.GriefGP(cov_func=cov, grid=6, rank=12, rotate=True),
    "grief category": lambda cov, n: sgp.GriefGP(cov_func=cov, grid=6, rank=12),
    "skip category": lambda cov, n: sgp.SKIPMarginal(cov_func=cov, grid_size=12, rank=4),
    "vecchia category": lambda cov, n: sgp.VecchiaMarginal(
        cov_func=cov, n_inducing=4, neighbors=3, block=4
    ),
    "skip task": lambda cov, n: sgp.SKIPMarginal(
        cov_func=cov, grid_size=12, rank=4, task_dim=cov.input_dim - 1, task_cov=TASKS
    ),
    "kmcg cells": lambda cov, n: sgp.KMCGMarginal(cov_func=cov, n_iter=3),
    "kmcg cells counts": lambda cov, n: sgp.KMCGMarginal(cov_func=cov, n_iter=3),
    "kmcg few cells counts": lambda cov, n: sgp.KMCGMarginal(cov_func=cov),
}
FORMS = ["plain", "product", "scaled"]
NEEDS_PRODUCTS = ("grief", "skip", "cells")
LABELLED = ("category", "task")  # one more column, of whole numbers
TASKS = np.array([[1.0, 0.5], [0.3, -0.4], [0.0, 2.0]])


@dataclass
class Problem:
    """Data, a class and a kernel, and hyperparameters as logarithms (points, d + 2)."""

    kind: str
    kernel: str
    X: np.ndarray
    y: np.ndarray
    scales: np.ndarray
    log_points: np.ndarray
    labels: np.ndarray

    @property
    def labelled(self):
        return any(word in self.kind for word in LABELLED)

    @property
    def inputs(self):
        """As the class takes them."""
        return np.c_[self.X, self.labels] if self.labelled else self.X


@st.composite
def problems(draw, points):
    """Scales from 1e-6 to 1e6, duplicates, collinear and constant columns, outliers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(sorted(CLASSES)))
    sizes = [2, 3, 8, 25] if "cholqr" in kind else [1, 2, 3, 8, 25]  # which leaves one row out
    most = 1 if kind == "series" else 2 if "skip" in kind else 3
    n, d = draw(st.sampled_from(sizes)), draw(st.integers(1, most))
    scales = 10.0 ** np.array([draw(st.integers(-6, 6)) for _ in range(d)])
    X = rng.standard_normal((n, d))
    shape = draw(st.sampled_from(["plain", "duplicates", "collinear", "constant", "far", "equal"]))
    if shape == "duplicates":
        X = X[rng.integers(0, max(1, n // 4), n)]
    elif shape == "collinear":
        X = X[:, :1] * np.ones(d)
    elif shape == "constant":
        X[:, -1] = 1.0
    elif shape == "far":
        X[-1] += 1e4
    elif shape == "equal":
        X[:] = X[:1]
    X = X * scales + draw(st.sampled_from([0.0, 1.0, 1e3])) * scales
    y = rng.standard_normal(n)
    target = draw(st.sampled_from(["plain", "outlier", "constant", "zero"]))
    if target == "outlier":
        y[0] = 1e6
    elif target != "plain":
        y[:] = target == "constant"
    y = y * 10.0 ** draw(st.integers(-6, 6))
    labels = rng.integers(0, len(TASKS), n)
    forms = ["plain", "scaled"] if any(word in kind for word in LABELLED) else FORMS
    if not any(word in kind for word in NEEDS_PRODUCTS):
        forms = [*forms, "sum", "matern", "ratquad"] if forms is FORMS else forms
    forms = ["matern", "materns"] if kind == "series" else forms
    kernel = draw(st.sampled_from(forms))
    extreme = rng.random((points, d + 2)) < 0.2
    logs = np.where(extreme, rng.uniform(-8.0, 8.0, extreme.shape), rng.uniform(-1.0, 1.0, extreme.shape))
    return Problem(kind, kernel, X, y, scales, np.log(10.0) * logs, labels)


def covariance(problem, ell, eta):
    d = problem.X.shape[1]
    cov = pm.gp.cov
    if problem.labelled:
        shape = cov.ExpQuad(d + 1, ls=ell, active_dims=list(range(d))) * eta**2
        if "category" in problem.kind:
            shape = shape * sgp.cov.Hamming(d + 1, 0.7, active_dims=[d])
        return shape if problem.kernel == "plain" else 3.0 * shape
    if problem.kernel == "matern":
        return eta**2 * cov.Matern32(d, ls=ell)
    if problem.kernel == "materns":
        return eta**2 * cov.Matern12(d, ls=ell) + 0.1 * cov.Matern52(d, ls=2.0 * ell)
    if problem.kernel == "ratquad":
        return eta**2 * cov.RatQuad(d, alpha=1.5, ls=ell)
    if problem.kernel == "sum":
        return eta**2 * cov.ExpQuad(d, ls=ell) + 0.1 * cov.Matern52(d, ls=2.0 * ell)
    if problem.kernel == "product":
        return eta**2 * sgp.cov.Product(cov.Matern52, d, ls=ell)
    if problem.kernel == "scaled":
        return 3.0 * cov.ExpQuad(d, ls=ell) * eta**2
    return cov.ExpQuad(d, ls=ell)


def model_of(problem):
    """Model of the problem, and its GP; hyperparameters are exponentials of one flat vector."""
    d = problem.X.shape[1]
    with pm.Model() as model:
        t = pm.Flat("t", shape=d + 2, initval=np.zeros(d + 2))
        ell, eta, sigma = (pm.math.exp(t[:d]) * problem.scales, pm.math.exp(t[d]), pm.math.exp(t[d + 1]))
        make, n = CLASSES[problem.kind], len(problem.X)
        if "weights" in problem.kind:
            gp = make(covariance(problem, problem.scales, 1.0), n)
            weights = eta**2 * np.ones(gp.build(problem.X, progressbar=False))
            gp.marginal_likelihood("y", problem.X, problem.y, sigma, weights=weights)
            return model, gp
        gp = make(covariance(problem, ell, eta), n)
        if problem.kind.startswith("latent"):
            pm.Normal("y", gp.prior("f", problem.X), sigma, observed=problem.y)
        elif "cells" in problem.kind:
            grid = cells_of(problem)
            y, noise = np.resize(problem.y, grid.observed.sum()), {"sigma": sigma}
            if "counts" in problem.kind:
                # Beyond, what gamma functions lose to rounding is in the density.
                y = np.minimum(np.abs(y), 1e3).round()
                noise = {"likelihood": lambda f: counts(f, sigma)}
            gp.marginal_likelihood("y", grid, y, **noise)
        else:
            gp.marginal_likelihood("y", problem.inputs, problem.y, sigma)
    return model, gp


def counts(f, scale):
    """More than Poisson's variance, the less the scale."""
    return pm.NegativeBinomial.dist(mu=pm.math.exp(f), alpha=1.0 / scale)


def cells_of(problem):
    """A grid of three to five nodes per axis, some of its cells without data."""
    side = 3 + min(2, len(problem.X) // 2)
    axes = [problem.X[0, i] + scale * np.arange(side) for i, scale in enumerate(problem.scales)]
    observed = np.random.default_rng(0).random((side,) * len(axes)) < 0.8
    observed.flat[:3] = True
    return sgp.RegularGrid(axes, observed)


def check_problem(problem):
    model, gp = model_of(problem)
    density = model.logp_dlogp_function(ravel_inputs=True, mode="FAST_COMPILE")
    start = model.initial_point()
    rng = np.random.default_rng(0)
    for values in problem.log_points:
        point = start | {"t": values}
        for name in point:
            if name != "t":
                point[name] = rng.standard_normal(np.shape(point[name]))
        flat = np.concatenate([np.ravel(point[name]) for name in (v.name for v in model.value_vars)])
        *_, eta, sigma = np.exp(values)
        check_density(density, flat, differences=eta < LARGEST * sigma)
        check_predictions(gp, model, problem, point, np.isfinite(density(flat)[0]))


def check_density(density, flat, differences=True):
    """A number, -inf or NaN; a finite gradient where it is a number, and the right one."""
    logp, slope = density(flat)
    assert logp != np.inf
    if not np.isfinite(logp):
        return
    assert np.isfinite(slope).all(), f"gradient {slope} of a density {logp}"
    if not differences:
        return
    along = np.random.default_rng(1).standard_normal(len(flat))
    ends = {h: density(flat + h * along)[0] - density(flat - h * along)[0] for h in (1e-4, 2e-4)}
    near, far = (ends[h] / (2.0 * h) for h in ends)
    rounding = 1e-9 * (1.0 + abs(logp)) / 1e-4
    resolved = np.isfinite(near + far) and abs(near - far) < 1e-3 * abs(near)
    if resolved and abs(near) > 1e4 * rounding:
        assert slope @ along == pytest.approx(near, rel=1e-2), f"density {logp}"


def check_predictions(gp, model, problem, point, finite):
    """Variances at rows, between them and far away: not negative, and numbers where the density is."""
    where = np.concatenate(
        [problem.X[:3], problem.X[:1] + 0.3 * problem.scales, problem.X[:1] + 1e3 * problem.scales]
    )
    if problem.labelled:
        where = np.c_[where, np.resize(problem.labels, len(where))]
    mean, var = gp.predict(where, point=point, diag=True, model=model)
    assert not (var < 0.0).any(), var
    if finite:
        assert np.isfinite(mean).all()
        assert np.isfinite(var).all()


OPTIONS = {
    "deadline": None, "database": None, "derandomize": False,
    "suppress_health_check": list(HealthCheck), "print_blob": False, "phases": [Phase.generate],
}  # fmt: skip


def run(examples, points, record_property):
    """As many models; counted, as cases, with each of their hyperparameters."""
    found = []

    @seed(20)
    @settings(max_examples=examples, **OPTIONS)
    @given(problem=problems(points))
    def cases(problem):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_problem(problem)
        found.append(len(problem.log_points))

    cases()
    record_property("cases", sum(found))


def test_hard_inputs(record_property):
    run(4, 25, record_property)  # compilation is what a model costs


@pytest.mark.slow
def test_many_hard_inputs(record_property):
    run(670, 15, record_property)
