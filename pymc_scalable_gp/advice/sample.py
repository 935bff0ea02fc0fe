"""Some rows, the kernel between them at one point of the model, and a noise."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_scalable_gp.core.features.nystrom import reference_values
from pymc_scalable_gp.core.vecchia.neighbors import Metric
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.utils.compiled import compiled

# Rows that are compared, and rows that features are built on; of kernels that Python computes entry by
# entry, fewer.
COMPARED, BUILT_ON = 600, 6000
COMPARED_DEAR, BUILT_ON_DEAR = 120, 240

# Half of the rows that are compared are the nearest of so many random ones: what neighbours tell of one
# another shows among rows as close as they lie in the data.
CLUMPS = 8

# Variances of the noise that are tried, as shares of the prior variance; and the share without targets.
NOISES = np.geomspace(1e-4, 10.0, 16)
ASSUMED_NOISE = 0.01

# Multiples of the columns' spread that are tried as lengthscales where no kernel was given, and rows on
# which they are.
LENGTHSCALES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
FITTED = 400


@dataclass(frozen=True)
class Sample:
    """Rows `X` (p, d) that are compared, rows `base` that features are built on, and the kernel there."""

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
    def kernel(self):
        """Function of two sets of rows."""
        left, right = (pt.matrix(name, dtype="float64") for name in ("left", "right"))
        graph = kernel_matrix(self.cov_func, left, right)
        with self.context():
            variables, values = reference_values([graph], self.point, [left, right])
        function = compiled([left, right, *variables], graph)
        return lambda a, b: np.asarray(function(a, b, *values), dtype=float)

    @cached_property
    def K(self) -> np.ndarray:
        """Kernel matrix (p, p)."""
        return self.kernel(self.X, self.X)


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
            metric = Metric(cov_func, base, point)
        rows = _with_clumps(X, order, compared, metric)
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


def default_kernel(X, y, random_seed) -> tuple[pm.gp.cov.BaseCovariance, str]:
    """An ExpQuad with a lengthscale per column, and in words how these were chosen."""
    rows = np.random.default_rng(random_seed).permutation(len(X))[:FITTED]
    spread, d = X.std(axis=0), X.shape[1]
    spread = np.where(spread > 0.0, spread, 1.0)
    multiple, scale, how = np.sqrt(d), 1.0, "the square root of the number of columns"
    if y is not None:
        scaled = X[rows] / spread
        square = ((scaled[:, None] - scaled) ** 2).sum(axis=2)
        e = y[rows] - y.mean()
        tried = [(profile_noise(np.exp(-0.5 * square / each**2), e), each) for each in LENGTHSCALES]
        (_, _, scale), multiple = max(tried)
        how = f"the best of {len(tried)} multiples on {len(rows)} rows"
    text = (
        f"No cov_func was given: ExpQuad with lengthscales of {multiple:.3g} standard deviations of each "
        f"column ({how})"
    )
    return float(scale) * pm.gp.cov.ExpQuad(d, ls=multiple * spread), text
