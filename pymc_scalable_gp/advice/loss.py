"""Loss of a candidate against the exact Gaussian process, on some rows at one point of the model."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import linalg

from pymc_scalable_gp.advice.candidates import EXACT, Candidate
from pymc_scalable_gp.advice.facts import Facts
from pymc_scalable_gp.core.data.inputs import check_inputs, check_target
from pymc_scalable_gp.core.likelihoods.base import FullRows, Likelihood, MarginalData
from pymc_scalable_gp.core.vecchia.likelihood import NeighborRows
from pymc_scalable_gp.core.vecchia.neighbors import Metric
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.methods.cholqr.gp import CholQRMarginal
from pymc_scalable_gp.methods.grief.gp import GriefGP
from pymc_scalable_gp.methods.kmcg.cells import CellMap
from pymc_scalable_gp.methods.kmcg.gp import KMCGMarginal
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid
from pymc_scalable_gp.methods.skip.gp import SKIPMarginal
from pymc_scalable_gp.methods.vecchia.gp import VecchiaMarginal
from pymc_scalable_gp.utils.compiled import evaluate, point_values

# Rows that are compared, and rows that features are built on; fewer of kernels that Python computes entry
# by entry. SKIP's trees take eigenvectors of a matrix of the rows that they are built on.
ROWS, DEAR_ROWS, SKIP_ROWS = (600, 6000), (120, 240), 1000

# Half of the rows that are compared are the nearest of so many random ones: what neighbours tell of one
# another shows among rows as close as they lie in the data.
CLUMPS = 8

# Variances of the noise that are tried, as shares of the prior variance; and the share without targets.
NOISES, ASSUMED_NOISE = np.geomspace(1e-4, 10.0, 16), 0.01

# Probes over whose spread the error of a log determinant is estimated.
PROBES = 16

# The marginal classes, by the first letters of their names and of the latent ones with the same features.
WITH_FEATURES = {
    kind.__name__[:4]: kind for kind in (GriefGP, SKIPMarginal, CholQRMarginal, VecchiaMarginal)
}


@dataclass(frozen=True)
class Sample:
    """Rows `X` (p, d) that are compared, and rows `base` that features are built on."""

    X: np.ndarray
    base: np.ndarray
    cov_func: pm.gp.cov.BaseCovariance
    point: dict | None
    model: pm.Model | None
    noise: float  # variance

    def context(self):
        """The model whose variables the kernel has, or an empty one."""
        return self.model or pm.Model(model=None)

    @cached_property
    def K(self) -> np.ndarray:
        """Kernel matrix (p, p)."""
        with self.context():
            return evaluate([kernel_matrix(self.cov_func, pt.constant(self.X))], self.point)[0]


def take_sample(X, y, cov_func, point, model, dear: bool, random_seed) -> Sample:
    """Choose the rows, and the noise that the targets y (None: there are none) have beside the kernel."""
    compared, built_on = DEAR_ROWS if dear else ROWS
    order = np.random.default_rng(random_seed).permutation(len(X))
    # The rows at the ends of each column come first: features reach as far as the data do.
    ends = np.unique([X.argmin(axis=0), X.argmax(axis=0)])
    base = X[np.concatenate([ends, order[:built_on][~np.isin(order[:built_on], ends)]])]
    sample, rows = Sample(X, base, cov_func, point, model, 0.0), order[:compared]
    if len(X) > compared and not dear:
        with sample.context():
            places = Metric(cov_func, base, point).coordinates(X)
        # Random rows, half of those compared, and the nearest rows of some.
        half = compared // 2
        squares = (((places - places[row]) ** 2).sum(axis=1) for row in order[:CLUMPS])
        near = [np.argpartition(each, half // CLUMPS)[: half // CLUMPS] for each in squares]
        chosen = np.unique(np.concatenate([order[:half], *near]))
        rest = order[half:][~np.isin(order[half:], chosen)]
        rows = np.concatenate([chosen, rest[: compared - len(chosen)]])
    rows = np.sort(rows)
    sample = replace(sample, X=X[rows])
    if not np.isfinite(sample.K).all():
        raise ValueError(
            "the kernel is not finite at the hyperparameters that losses are computed at: give "
            "point={...}, values of plausible size"
        )
    noise = ASSUMED_NOISE * np.diag(sample.K).mean()
    if y is not None:
        noise = profile_noise(sample.K, y[rows] - y.mean(), 1.0)[1]
    return replace(sample, noise=noise)


def profile_noise(K, e, scale=None) -> tuple[float, float, float]:
    """Log density of e (p,) under ``s (K + v I)`` at its best over v, ``s v``, and s: the best for None."""
    values, vectors = np.linalg.eigh(K)
    square, prior = (vectors.T @ e) ** 2, np.diag(K).mean()
    found = []
    for share in NOISES:
        spectrum = np.maximum(values, 0.0) + share * prior
        s = (square / spectrum).mean() if scale is None else scale
        logp = -0.5 * ((square / spectrum).sum() / s + np.log(2.0 * np.pi * s * spectrum).sum())
        found.append((logp, s * share * prior, s))
    return max(found)


class Loss(NamedTuple):
    """Nats per thousand rows, and the share of prior variance that is not explained; NaN: not known."""

    loss: float = np.nan
    missed: float = np.nan


def expected_loss(candidate: Candidate, sample: Sample, facts: Facts) -> Loss:
    """Kullback-Leibler divergence from the exact GP (of the marginal class); ValueError if refused."""
    name = candidate.class_name
    products = name == "KMCGMarginal" and not candidate.by_mode
    if name in EXACT or (products and facts.has_eigenbasis):
        return Loss(0.0, 0.0)
    if name.startswith("SoftKI"):
        return Loss()  # of points that are learned, which would take a training
    with sample.context(), warnings.catch_warnings():
        # Unexplained variance is a column of the table.
        warnings.simplefilter("ignore", UserWarning)
        if products:
            return Loss(loss_by_products(candidate.settings, sample, facts), 0.0)
        likelihood = likelihood_of(candidate, sample, facts)
        nats = divergence(likelihood, sample)
        if isinstance(likelihood, NeighborRows):
            return Loss(nats, 0.0)
        (phi,) = evaluate([likelihood.prediction_map().features(pt.constant(sample.X))], sample.point)
    prior = np.diag(sample.K)
    left = 1.0 - (phi**2).sum(axis=1)[prior > 0.0] / prior[prior > 0.0]
    return Loss(nats, float(np.maximum(left, 0.0).mean()))


def likelihood_of(candidate: Candidate, sample: Sample, facts: Facts) -> Likelihood:
    """Likelihood of the rows compared, at targets of 0; each has a noise, so that none is summarised."""
    p, cov_func, settings = len(sample.X), sample.cov_func, candidate.settings
    X, y, sigma = sample.X, np.zeros(p), np.full(p, np.sqrt(sample.noise))
    if candidate.class_name == "KMCGMarginal":  # features of the whole grid
        gp = KMCGMarginal(cov_func=cov_func)
        cells = CellMap.of(cov_func, gp.inputs_of(facts.grid), settings["n_iter"], sample.point)
        rows = check_inputs(X), check_target(y, p), pt.constant(sigma)
        return FullRows(MarginalData(cells, gp.mean_func, *rows, "FITC"))
    # At its reference a frozen or rotated basis is the free one.
    chosen = {k: v for k, v in settings.items() if k not in ("basis", "rotate")}
    kind, base = WITH_FEATURES[candidate.class_name[:4]], sample.base
    if kind is VecchiaMarginal and chosen["neighbors"] is None:  # inducing points alone
        chosen, kind = {"n_inducing": chosen["n_inducing"]}, CholQRMarginal
    if kind is not VecchiaMarginal and (candidate.by_prior or len(chosen) < len(settings)):
        chosen["approx"] = "DTC"
    gp = kind(cov_func=cov_func, **chosen)
    gp.build(base[:SKIP_ROWS] if kind is SKIPMarginal else base, point=sample.point)
    return gp.conditioned_on({"X": X, "y": y, "sigma": sigma})


def divergence(likelihood: Likelihood, sample: Sample) -> float:
    r"""Divergence of the likelihood from ``N(0, S)``, S = K + noise I, in nats per thousand rows.

    ``E log N(y | 0, S) - E log p(y)`` with ``E log p(y) = log p(0) - tr(P S) / 2``, where P is the
    precision matrix of the likelihood, by which rows are left out too.
    """
    p, model = len(sample.X), pm.modelcontext(None)
    try:
        (at_zero,) = evaluate([likelihood.logp()], sample.point)
        precisions = likelihood.precisions(model)
        values = point_values(precisions.inputs, sample.point, model, fill=True)
        precision = precisions(values).block(np.arange(p))
    except linalg.LinAlgError:  # singular to working precision
        return np.nan
    S = sample.K + sample.noise * np.eye(p)
    exact = -0.5 * (p + np.linalg.slogdet(S)[1] + p * np.log(2.0 * np.pi))
    return float(1000.0 / p * (exact - at_zero + 0.5 * (precision * S).sum()))


def loss_by_products(settings: dict, sample: Sample, facts: Facts) -> float:
    """KMCG's loss in nats per thousand rows: half the errors that its log determinant reports."""
    # On some cells side by side: what stopping adds per row is the same on all, the standard error is not.
    cells, model = grid_stretch(facts.grid, len(sample.X)), pm.modelcontext(None)
    steps = min(settings["n_iter"], cells.n - 1)
    gp = KMCGMarginal(cov_func=sample.cov_func, n_iter=steps, probes=PROBES)
    gp.decomposes = False  # the stretch stands for a grid that is not exact
    data = {"X": cells, "y": np.ones(cells.n), "sigma": sample.noise**0.5}
    error, excess = gp.conditioned_on(data).logdet.errors([sample.point], model)[0]
    error *= np.sqrt(PROBES / settings["probes"])
    return float(500.0 * (excess / cells.n + error / np.sqrt(cells.n * facts.n)))


def grid_stretch(grid: RegularGrid, count: int) -> RegularGrid:
    """About `count` cells of a grid that lie side by side, in its middle."""
    side = max(int(count ** (1.0 / len(grid.axes))), 1)
    middle = [(len(axis) - min(side, len(axis))) // 2 for axis in grid.axes]
    inside = tuple(slice(m, m + side) for m in middle)
    axes = [axis[part] for axis, part in zip(grid.axes, inside, strict=True)]
    observed = None if grid.observed is None else grid.observed[inside]
    return RegularGrid(axes, None if observed is None or not observed.any() else observed)
