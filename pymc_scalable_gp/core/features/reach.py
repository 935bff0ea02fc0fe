"""Where features describe the kernel: the prior variance that they hold, within and beyond the data."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.warn import warn

# Share of the prior variance that features may lose beyond their range without a warning.
LOST = 0.05


def _missed(feature_map, X: np.ndarray, point=None, model=None) -> np.ndarray:
    """Shares (n,) of the prior variance at rows X (n, d) that the features miss."""
    X = pt.constant(X)
    phi, prior = evaluate([feature_map.features(X), feature_map.kernel_diag(X)], point, model)
    return 1.0 - (phi**2).sum(axis=1) / prior


def missing_share(feature_map, data) -> float:
    """Mean share of prior variance that the features miss at rows of the data, at the initial point."""
    n = data.value.shape[0]
    count = min(n, feature_map.block_rows)
    rows = np.unique(np.linspace(0, n - 1, count).astype(int))
    return float(_missed(feature_map, data.value[rows]).mean())


def warn_beyond(feature_map, X: np.ndarray, point=dict, model=None) -> None:
    """Warn when features lose prior variance at inputs X (n, d) beyond their range.

    Kernels that carry far (periodic, linear, of long lengthscales) lose none. `point` gives the
    hyperparameters; it is called where it is needed.
    """
    text = feature_map.outside(X) if len(X) else None
    if not text:
        return
    # The rows farthest out, column by column.
    ends = X[np.unique([X.argmin(axis=0), X.argmax(axis=0)])]
    ends = ends[[feature_map.outside(row[None]) is not None for row in ends]]
    lost = _missed(feature_map, ends, point(), model).max()
    if not lost <= LOST:
        warn(
            f"Xnew lies outside what the approximation covers: {text}. Predictions there return to "
            f"the mean function and the prior variance, of which the features lose {lost:.0%}"
        )
