"""What a candidate loses against the exact Gaussian process, on a sample of rows."""

import warnings
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy import linalg

from pymc_scalable_gp.advice.candidates import Candidate
from pymc_scalable_gp.advice.facts import Facts
from pymc_scalable_gp.advice.sample import Sample
from pymc_scalable_gp.core.marginal import FeatureMarginal
from pymc_scalable_gp.methods.cholqr.gp import CholQRMarginal
from pymc_scalable_gp.methods.grief.gp import GriefGP
from pymc_scalable_gp.methods.kmcg.gp import KMCGMarginal
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid
from pymc_scalable_gp.methods.skip.gp import SKIPMarginal
from pymc_scalable_gp.methods.vecchia.gp import VecchiaMarginal
from pymc_scalable_gp.utils.compiled import compile_outputs, evaluate, point_values

# Rows that SKIP's trees are built on: their directions are eigenvectors of a matrix of so many.
SKIP_ROWS = 1000

# Simulated targets over which KMCG's quadratic form is averaged.
DRAWS = 4

# Classes whose features a candidate has, by the beginning of its name.
WITH_FEATURES = {"GriefGP": GriefGP, "SKIP": SKIPMarginal, "CholQR": CholQRMarginal}


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
    if name == "ExactMarginal":
        return Loss(0.0, 0.0)
    if name.startswith("SoftKI"):
        return Loss()  # of points that are learned, which would take a training
    with sample.context(), warnings.catch_warnings():
        # What is missed is a column of the table.
        warnings.simplefilter("ignore", UserWarning)
        if name == "KMCGMarginal":
            return Loss(of_products(candidate.settings, sample, facts), 0.0)
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
    r"""Of the class' likelihood from ``N(0, S)``, S = K + noise I, in nats per thousand rows.

    .. math:: E \log N(y \mid 0, S) - E \log p(y), \qquad
              E \log p(y) = \log p(0) - \tfrac{1}{2} \operatorname{tr}(P S)

    with P the precision matrix of the likelihood, by which rows are left out too.
    """
    p = len(sample.X)
    # One noise per row, so that nothing is summarised: the density is that of these rows.
    data = {"X": sample.X, "y": np.zeros(p), "sigma": np.full(p, np.sqrt(sample.noise))}
    likelihood = gp.conditioned_on(data)
    try:
        (at_zero,) = evaluate([likelihood.logp()], sample.point)
        precisions = likelihood.precisions(pm.modelcontext(None))
        values = point_values(precisions.inputs, sample.point, pm.modelcontext(None), fill=True)
        precision = precisions(values).block(np.arange(p))
    except linalg.LinAlgError:  # singular to working precision
        return np.nan
    S = sample.K + sample.noise * np.eye(p)
    exact = -0.5 * (p + np.linalg.slogdet(S)[1] + p * np.log(2.0 * np.pi))
    return float(1000.0 / p * (exact - at_zero + 0.5 * (precision * S).sum()))


def of_products(settings: dict, sample: Sample, facts: Facts) -> float:
    """KMCG's, nats per thousand rows: its quadratic form after so many steps, and its log determinant.

    On some cells of the grid that lie side by side. The form's excess is the same share on any number of
    rows, since the spectrum of a stationary kernel on a grid is; the determinant's standard error, known
    from the dense matrix, grows with the root of that number.
    """
    cells = grid_stretch(facts.grid, len(sample.X))
    q = cells.n
    S = sample.kernel(cells.points, cells.points) + sample.noise * np.eye(q)
    white = np.random.default_rng(0).standard_normal((DRAWS, q))
    y = pytensor.shared(white[0])
    chosen = settings | {"n_iter": min(settings["n_iter"], q - 1)}
    gp = KMCGMarginal(cov_func=sample.cov_func, **chosen)
    likelihood = gp.conditioned_on({"X": cells, "y": y, "sigma": np.sqrt(sample.noise)})
    with pm.Model(model=None):
        logp = pm.logp(likelihood.observe("y"), y)
    model = pm.modelcontext(None)
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
