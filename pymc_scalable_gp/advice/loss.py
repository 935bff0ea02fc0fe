"""Loss of a candidate against the exact Gaussian process, on some rows at one point of the model."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy import linalg

from pymc_scalable_gp.advice.candidates import EXACT, Candidate
from pymc_scalable_gp.advice.facts import Facts
from pymc_scalable_gp.core.marginal import FeatureMarginal
from pymc_scalable_gp.core.vecchia.neighbors import Metric
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.methods.cholqr.gp import CholQRMarginal
from pymc_scalable_gp.methods.grief.gp import GriefGP
from pymc_scalable_gp.methods.kmcg.gp import KMCGMarginal
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid
from pymc_scalable_gp.methods.skip.gp import SKIPMarginal
from pymc_scalable_gp.methods.vecchia.gp import VecchiaMarginal
from pymc_scalable_gp.utils.compiled import compile_outputs, evaluate, point_values

# Rows that are compared, and rows that features are built on; of kernels that Python computes entry by
# entry, fewer. SKIP's trees take eigenvectors of a matrix of the rows that they are built on.
COMPARED, BUILT_ON = 600, 6000
COMPARED_DEAR, BUILT_ON_DEAR = 120, 240
SKIP_ROWS = 1000

# Half of the rows that are compared are the nearest of so many random ones: what neighbours tell of one
# another shows among rows as close as they lie in the data.
CLUMPS = 8

# Variances of the noise that are tried, as shares of the prior variance; and the share without targets.
NOISES = np.geomspace(1e-4, 10.0, 16)
ASSUMED_NOISE = 0.01

# Simulated targets over which KMCG's quadratic form is averaged.
DRAWS = 4

# Classes whose features a candidate has, by the beginning of its name.
WITH_FEATURES = {"GriefGP": GriefGP, "SKIP": SKIPMarginal, "CholQR": CholQRMarginal}


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

    def kernel(self, X) -> np.ndarray:
        """Kernel matrix of rows X."""
        with self.context():
            return evaluate([kernel_matrix(self.cov_func, pt.constant(X))], self.point)[0]

    @cached_property
    def K(self) -> np.ndarray:
        """Kernel matrix (p, p)."""
        return self.kernel(self.X)


def take_sample(X, y, cov_func, point, model, dear: bool, random_seed) -> Sample:
    """Choose the rows, and the noise that the targets y (None: there are none) have beside the kernel."""
    rng = np.random.default_rng(random_seed)
    compared, built_on = (COMPARED_DEAR, BUILT_ON_DEAR) if dear else (COMPARED, BUILT_ON)
    order = rng.permutation(len(X))
    # The rows at the ends of each column come first: features reach as far as the data do.
    ends = np.unique([X.argmin(axis=0), X.argmax(axis=0)])
    base = X[np.concatenate([ends, order[:built_on][~np.isin(order[:built_on], ends)]])]
    sample = Sample(X, base, cov_func, point, model, 0.0)
    rows = order[:compared]
    if len(X) > compared and not dear:
        with sample.context():
            rows = _with_clumps(X, order, compared, Metric(cov_func, base, point))
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


def _with_clumps(X, order, count, metric) -> np.ndarray:
    """Random rows, half of `count` of them, and the nearest rows of some."""
    half = count // 2
    places = metric.coordinates(X)
    squares = (((places - places[row]) ** 2).sum(axis=1) for row in order[:CLUMPS])
    near = [np.argpartition(each, half // CLUMPS)[: half // CLUMPS] for each in squares]
    chosen = np.unique(np.concatenate([order[:half], *near]))
    rest = order[half:][~np.isin(order[half:], chosen)]
    return np.concatenate([chosen, rest[: count - len(chosen)]])


def profile_noise(K, e, scale=None) -> tuple[float, float, float]:
    """Log density of e (p,) under ``s (K + v I)`` at its best over v, that ``s v``, and s.

    `scale` None takes the best s for each v.
    """
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
    """Nats per thousand rows, and the share of the prior variance that features miss; NaN: not known."""

    loss: float = np.nan
    missed: float = np.nan


def expected_loss(candidate: Candidate, sample: Sample, facts: Facts) -> Loss:
    """Kullback-Leibler divergence from the exact GP: what log density it loses on data of that GP.

    The class itself is built on the sample, and its likelihood evaluated there; of a latent class the
    marginal one with the same features. Raises ValueError if the class refuses the kernel or the inputs.
    """
    name = candidate.class_name
    if name in EXACT:
        return Loss(0.0, 0.0)
    if name.startswith("SoftKI"):
        return Loss()  # of points that are learned, which would take a training
    with sample.context(), warnings.catch_warnings():
        # What is missed is a column of the table.
        warnings.simplefilter("ignore", UserWarning)
        if name == "KMCGMarginal" and facts.has_eigenbasis:
            return Loss(0.0, 0.0)
        if name == "KMCGMarginal":
            return Loss(loss_by_products(candidate.settings, sample, facts), 0.0)
        gp = marginal_class(candidate, sample.cov_func)
        gp.build(sample.base[: SKIP_ROWS if name.startswith("SKIP") else None], point=sample.point)
        nats = divergence(gp, sample)
        if isinstance(gp, VecchiaMarginal):
            return Loss(nats, 0.0)
        (phi,) = evaluate([gp.features(pt.constant(sample.X))], sample.point)
    left = 1.0 - (phi**2).sum(axis=1) / np.diag(sample.K)
    return Loss(nats, float(np.maximum(left, 0.0).mean()))


def marginal_class(candidate: Candidate, cov_func) -> FeatureMarginal:
    """The candidate under Gaussian noise, not yet built.

    A frozen or rotated basis is, at its reference, the free one with as many features.
    """
    chosen = {k: v for k, v in candidate.settings.items() if k not in ("basis", "rotate")}
    if chosen.get("neighbors") is not None:
        return VecchiaMarginal(cov_func=cov_func, **chosen)
    if candidate.class_name == "VecchiaLatent":  # inducing points alone
        chosen, kind = {"n_inducing": chosen["n_inducing"]}, CholQRMarginal
    else:
        kind = next(v for k, v in WITH_FEATURES.items() if candidate.class_name.startswith(k))
    return kind(cov_func=cov_func, **(chosen | {"approx": candidate.treatment}))


def divergence(gp: FeatureMarginal, sample: Sample) -> float:
    r"""Divergence of the likelihood from ``N(0, S)``, S = K + noise I, in nats per thousand rows.

    .. math:: E \log N(y \mid 0, S) - E \log p(y), \qquad
              E \log p(y) = \log p(0) - \tfrac{1}{2} \operatorname{tr}(P S)

    with P the precision matrix of the likelihood, by which rows are left out too.
    """
    p, model = len(sample.X), pm.modelcontext(None)
    # One noise per row, so that nothing is summarised: the density is that of these rows.
    data = {"X": sample.X, "y": np.zeros(p), "sigma": np.full(p, np.sqrt(sample.noise))}
    likelihood = gp.conditioned_on(data)
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
    """KMCG's loss in nats per thousand rows, by its quadratic form and its log determinant.

    Both are found on some cells of the grid that lie side by side. The form's excess per row does not
    depend on the number of rows, nor does the spectrum of a stationary kernel on a grid; the determinant's
    standard error, known from the dense matrix, grows with the root of that number.
    """
    cells, model = grid_stretch(facts.grid, len(sample.X)), pm.modelcontext(None)
    q = cells.n
    S = sample.kernel(cells.points) + sample.noise * np.eye(q)
    white = np.random.default_rng(0).standard_normal((DRAWS, q))
    y = pytensor.shared(white[0])
    chosen = settings | {"n_iter": min(settings["n_iter"], q - 1)}
    gp = KMCGMarginal(cov_func=sample.cov_func, **chosen)
    gp.decomposes = False  # the stretch stands for a grid that is not exact
    likelihood = gp.conditioned_on({"X": cells, "y": y, "sigma": np.sqrt(sample.noise)})
    with pm.Model(model=None):
        logp = pm.logp(likelihood.observe("y"), y)
    function, inputs = compile_outputs([logp, likelihood.logdet.estimate()], model)
    values, excess = point_values(inputs, sample.point, model, fill=True), 0.0
    for draw, target in zip(white, white @ linalg.cholesky(S), strict=True):
        y.set_value(target)
        found, logdet = function(*values)
        form = -2.0 * found - logdet - q * np.log(2.0 * np.pi)
        excess += max(form - draw @ draw, 0.0) / DRAWS
    eigenvalues, vectors = np.linalg.eigh(S)
    log = (vectors * np.log(eigenvalues)) @ vectors.T
    off_diagonal = np.square(log).sum() - np.square(np.diag(log)).sum()
    deviation = np.sqrt(2.0 / settings["probes"] * off_diagonal)
    return float(500.0 * (excess / q + deviation / np.sqrt(q * facts.n)))


def grid_stretch(grid: RegularGrid, count: int) -> RegularGrid:
    """About `count` cells of a grid that lie side by side, in its middle."""
    side = max(int(count ** (1.0 / len(grid.axes))), 1)
    middle = [(len(axis) - min(side, len(axis))) // 2 for axis in grid.axes]
    inside = tuple(slice(m, m + side) for m in middle)
    axes = [axis[part] for axis, part in zip(grid.axes, inside, strict=True)]
    observed = None if grid.observed is None else grid.observed[inside]
    return RegularGrid(axes, None if observed is None or not observed.any() else observed)
