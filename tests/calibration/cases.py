"""The rows of the table: classes with their settings, each as a model of simulated data."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from calibration.problems import (
    EIGHT,
    FIXED_ELL,
    GAP,
    GRID,
    GROUPS,
    LINE,
    PLANE,
    PRIORS,
    SHORT,
    THREE,
    WEIGHTS,
    WIDE,
    Problem,
    by_groups,
    matern32,
)

import pymc_scalable_gp as sgp

NEAR = {"neighbors": 15, "block": 4}


@dataclass(frozen=True)
class Case:
    """A class with settings, and the problem that it is tried on.

    `make(priors, X, y, medians)` gives the GP of a model with an observed variable. With `renew` the
    model is built anew for each data set: what it keeps of y is fixed when it is built.
    """

    name: str
    settings: str
    make: Callable
    problem: Problem
    renew: bool = False
    fails: bool = False
    adaptation: str = "diag"  # of NUTS' mass matrix
    weights: bool = False  # draws by `sample_importance` in place of NUTS
    correct: str = ""  # target of `gp.correct` after it

    @property
    def quantities(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """What is ranked beside function values: variable and place by label."""
        found = {name: (name, ()) for name in self.problem.priors}
        if self.problem.weighted:
            found |= {f"w[{j}]": ("w", (j,)) for j in (0, 4, WEIGHTS - 1)}
        return found

    def model(self, y) -> tuple[pm.Model, object]:
        """Model of the data y, and its GP."""
        with pm.Model() as model:
            y = y if self.renew else pm.Data("targets", y)
            gp = self.make(self.problem.variables(), self.problem.X, y, self.problem.medians())
        return model, gp

    def describe(self) -> str:
        """Settings and problem on one line: results of another one do not belong together."""
        p = self.problem
        priors = ", ".join(f"{name} {median:g} {sd:g}" for name, (median, sd) in p.priors.items())
        return f"{self.name}; {self.settings}; n {len(p.rows)}, d {p.Xnew.shape[1]}; {priors}"


def kernel(priors, d=2):
    """Squared-exponential, with whatever of scale and lengthscale is free."""
    cov = pm.gp.cov.ExpQuad(d, ls=priors.get("ell", FIXED_ELL))
    return priors["eta"] ** 2 * cov if "ell" in priors else cov


def marginal(cls, **options):
    """A marginal class that chooses what it needs by itself."""

    def make(priors, X, y, medians):
        gp = cls(
            cov_func=kernel(priors, len(X.axes) if isinstance(X, sgp.RegularGrid) else X.shape[1]),
            **options,
        )
        gp.marginal_likelihood("y", X=X, y=y, sigma=priors["sigma"])
        return gp

    return make


def built(cls, **options):
    """A marginal class that is built at the priors' medians."""

    def make(priors, X, y, medians):
        gp = cls(cov_func=kernel(priors, X.shape[1]), **options)
        gp.build(X, point=medians)
        gp.marginal_likelihood("y", X=X, y=y, sigma=priors["sigma"])
        return gp

    return make


def selected(priors, X, y, medians):
    """CholQR with points that are chosen by swaps for each data set."""
    gp = sgp.CholQRMarginal(cov_func=kernel(priors), n_inducing=30)
    gp.select_inducing(X, y, priors["sigma"], rounds=2, progressbar=False)
    gp.marginal_likelihood("y", X=X, y=y, sigma=priors["sigma"])
    return gp


def scaled(priors, X, y, medians):
    """Type I: the kernel is fixed, and one scale is the weight of all eigenfunctions."""
    gp = sgp.GriefGP(cov_func=kernel({}), rank=60)
    weights = priors["eta"] ** 2 * pt.ones(gp.build(X))
    gp.marginal_likelihood("y", X=X, y=y, sigma=priors["sigma"], weights=weights)
    return gp


def weighted(priors, X, y, medians):
    """Type I: each eigenfunction has a weight of its own."""
    gp = sgp.GriefGP(cov_func=kernel({}), rank=WEIGHTS)
    weights = sgp.weights_prior("w", gp.build(X))
    gp.marginal_likelihood("y", X=X, y=y, sigma=priors["sigma"], weights=weights)
    return gp


def counts(priors, X, y, medians):
    """SKIP under a Poisson likelihood."""
    gp = sgp.SKIPLatent(cov_func=kernel(priors), rank=7, grid_size=30)
    gp.build(X, point=medians)
    f = gp.prior("f", X)
    pm.Poisson("y", pm.math.exp(1.0 + f), observed=y)
    return gp


def integrated(likelihood, **options):
    """`VecchiaMarginal` with the function integrated out under a user's likelihood."""

    def make(priors, X, y, medians):
        gp = sgp.VecchiaMarginal(cov_func=kernel(priors), **options)
        gp.marginal_likelihood("y", X=X, y=y, likelihood=likelihood)
        return gp

    return make


def series(priors, X, y, medians):
    """A Matern process of one input by the Kalman filter."""
    gp = sgp.StateSpaceMarginal(cov_func=priors["eta"] ** 2 * pm.gp.cov.Matern32(1, priors["ell"]))
    gp.marginal_likelihood("y", X=X, y=y, sigma=priors["sigma"])
    return gp


def groups(priors, X, y, medians):
    """A common function and one for each group, with neighbours."""
    common = pm.gp.cov.ExpQuad(2, ls=priors["ell"], active_dims=[0])
    own = sgp.cov.PerGroup(pm.gp.cov.ExpQuad, 2, ls=priors["own_ell"], scale=priors["spread"], group_dim=1)
    gp = sgp.VecchiaMarginal(cov_func=priors["eta"] ** 2 * common + own, **few)
    gp.marginal_likelihood("y", X=X, y=y, sigma=priors["sigma"])
    return gp


def grid_points(m):
    """Points (m, 1), evenly over the line."""
    return np.linspace(0.0, 1.0, m)[:, None]


plane, line, short = Problem(PLANE), Problem(LINE), Problem(PLANE, SHORT)
no_sigma = {name: prior for name, prior in PRIORS.items() if name != "sigma"}
no_ell = {name: prior for name, prior in PRIORS.items() if name != "ell"}
only_sigma = {"sigma": PRIORS["sigma"]}
few = {"n_inducing": 10, **NEAR}
FEW = "n_inducing=10, neighbors=15, block=4"

CASES = {
    case.name: case
    for case in (
        Case("ExactMarginal", "", marginal(sgp.ExactMarginal), plane),
        Case(
            "VecchiaMarginal", "n_inducing=10, neighbors=15, block=4",
            marginal(sgp.VecchiaMarginal, n_inducing=10, **NEAR), plane,
        ),
        Case("GriefGP, type II", "grid=14, rank=60", built(sgp.GriefGP, grid=14, rank=60), plane),
        Case(
            "GriefGP, type I, scale", "fixed kernel, rank=60, weights=eta**2",
            scaled, Problem(PLANE, no_ell), renew=True,
        ),
        Case(
            "GriefGP, type I, weights", f"fixed kernel, rank={WEIGHTS}, weights_prior",
            weighted, Problem(PLANE, only_sigma, weighted=True), renew=True,
        ),
        Case("SKIPMarginal", "rank=7, grid_size=30", built(sgp.SKIPMarginal, rank=7, grid_size=30), plane),
        Case(
            "SKIPLatent, Poisson", "rank=7, grid_size=30",
            counts, Problem(PLANE[:40], no_sigma, "poisson"), adaptation="low_rank",
        ),
        Case(
            "KMCGMarginal", "6 × 8 cells, n_iter=40, probes=0",
            marginal(sgp.KMCGMarginal, n_iter=40, probes=0), Problem(GRID),
        ),
        Case(
            "KMCGMarginal, probes", "6 × 8 cells but one, n_iter=15, probes=8",
            marginal(sgp.KMCGMarginal, n_iter=15, probes=8), Problem(GAP),
        ),
        Case(
            "KMCGMarginal, complete grid", "6 × 8 cells", marginal(sgp.KMCGMarginal), Problem(GRID),
        ),
        Case("CholQRMarginal", "n_inducing=30", built(sgp.CholQRMarginal, n_inducing=30), plane),
        Case("CholQRMarginal, chosen", "n_inducing=30, select_inducing", selected, plane, renew=True),
        Case(
            "SoftKIMarginal", "40 points, temperature=0.01",
            marginal(sgp.SoftKIMarginal, inducing=grid_points(40), temperature=0.01), line, renew=True,
        ),
        Case(
            "SoftKIMarginal, VIF", "8 points, neighbors=15, block=4",
            marginal(sgp.SoftKIMarginal, inducing=grid_points(8), approx="VIF", **NEAR), line,
        ),
        Case(
            "GriefGP, DTC", "grid=14, rank=12, short lengthscales",
            built(sgp.GriefGP, grid=14, rank=12, approx="DTC"), short, fails=True,
        ),
        Case(
            "GriefGP, VIF", "grid=14, rank=12, short lengthscales, neighbors=15, block=4",
            built(sgp.GriefGP, grid=14, rank=12, approx="VIF", **NEAR), short,
        ),
        Case("StateSpaceMarginal", "Matern 3/2", series, Problem(LINE, cov=matern32)),
        Case(
            "VecchiaMarginal, groups", f"eta**2 * ExpQuad + PerGroup, {FEW}", groups,
            Problem(THREE, GROUPS, cov=by_groups, new=np.array([[0.5, 0.0], [0.15, 2.0]])),
        ),
        Case(
            "ExactMarginal, weights", "sample_importance",
            marginal(sgp.ExactMarginal), plane, weights=True,
        ),
        Case(
            "VecchiaMarginal, weights", f"{FEW}, sample_importance",
            marginal(sgp.VecchiaMarginal, **few), plane, weights=True,
        ),
        Case(
            "VecchiaMarginal, 8 inputs, corrected", f"{FEW}, sample_importance, correct(target='exact')",
            marginal(sgp.VecchiaMarginal, **few), Problem(EIGHT, WIDE), weights=True, correct="exact",
        ),
        Case(
            "VecchiaMarginal, Poisson", f"{FEW}, sample_importance, correct(target='likelihood')",
            integrated(lambda f: pm.Poisson.dist(mu=pm.math.exp(1.0 + f)), **few),
            Problem(PLANE, no_sigma, "poisson"), weights=True, correct="likelihood",
        ),
        Case(
            "VecchiaMarginal, Bernoulli", f"{FEW}, sample_importance, correct(target='likelihood')",
            integrated(lambda f: pm.Bernoulli.dist(logit_p=f), **few),
            Problem(PLANE, no_sigma, "bernoulli"), weights=True, correct="likelihood",
        ),
    )
}  # fmt: skip
