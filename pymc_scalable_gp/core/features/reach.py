"""The range of inputs in which features hold the prior variance, and warnings beyond it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.utils.blocks import some_rows
from pymc_scalable_gp.utils.checks import Refuse
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.warn import warn

# Share of the prior variance that features may miss without a warning.
MISSING_SHARE = 0.05

# New inputs may lie this share of the range beyond it, as may those that replace the training inputs.
_MARGIN = 0.05

_REPLACED = (
    "X was replaced by inputs beyond the range or the labels that the GP was built on, where its features "
    "hold no prior variance: use gp.conditional or gp.predict for new inputs, or build the "
    "model again on X that covers them"
)


@dataclass(frozen=True, eq=False)
class InputRange:
    """Lowest and highest inputs (d,) between which features hold the prior variance.

    Beyond them features die away, and without a term for the missing variance the model would be
    certain of the mean there. `probes` are a few inputs (p, d) at which the functions of another basis
    have other values; random ones within the range when left out, with labels in turn. `labels` are
    those that the features hold, by column, where the kernel compares categories: between two of them there
    is nothing. `turns` are the columns of longitudes, which count modulo 360.
    """

    low: np.ndarray
    high: np.ndarray
    probes: np.ndarray | None = None
    labels: Mapping[int, np.ndarray] = field(default_factory=dict)
    turns: Sequence[int] = ()

    def __post_init__(self):
        probes = self.probes
        if probes is None:
            # Somewhere in columns without ends too: the mean may look at these.
            finite = np.isfinite(self.low) & np.isfinite(self.high)
            low, high = np.where(finite, self.low, 0.0), np.where(finite, self.high, 1.0)
            count = max([5, *map(len, self.labels.values())])
            probes = low + (high - low) * np.random.default_rng(0).random((count, len(low)))
        probes = np.array(probes)
        for column, held in self.labels.items():
            probes[:, column] = np.resize(held, len(probes))
        object.__setattr__(self, "probes", probes)

    def _with_margin(self):
        margin = _MARGIN * (self.high - self.low)
        margin = margin + 1e-9 * np.maximum(np.abs(self.low), np.abs(self.high))
        return self.low - margin, self.high + margin

    def turned(self, X):
        """Inputs (n, d) with longitudes on the turn nearest to the middle of the range."""
        turns = [j for j in self.turns if np.isfinite(self.low[j])]
        middle, turn = np.zeros((2, len(self.low)))
        middle[turns], turn[turns] = 0.5 * (self.low[turns] + self.high[turns]), 360.0
        return X - ((X - middle) / 360.0).round() * turn if turns else X

    def _columns_beyond(self, X: np.ndarray) -> np.ndarray:
        """Columns in which inputs (n, d), `turned`, reach beyond the range."""
        low, high = self._with_margin()
        return np.flatnonzero((X.min(axis=0) < low) | (X.max(axis=0) > high))

    def outside(self, X: np.ndarray, what: str) -> str | None:
        """How far inputs (n, d) reach beyond the range, `what` in the words of the user; None: not.

        Labels do not: a new one has the prior variance.
        """
        X, width, texts = self.turned(X), self.high - self.low, []
        beyond = np.maximum(self.low - X.min(axis=0), X.max(axis=0) - self.high)
        columns = np.setdiff1d(self._columns_beyond(X), [*self.labels])
        for j in columns[:5]:
            share = f", {beyond[j] / width[j]:.0%} of its width" if width[j] else ""
            texts.append(f"column {j} reaches {beyond[j]:.3g} beyond {what}{share}")
        if len(columns) > 5:
            texts.append(f"and {len(columns) - 5} more")
        return "; ".join(texts) or None

    def unknown(self, X: np.ndarray) -> str | None:
        """Labels of inputs (n, d) that the features do not hold, in words; None where they hold all."""
        for column, held in self.labels.items():
            if len(new := np.setdiff1d(X[:, column], held)):
                return f"column {column} holds {in_words(new)}, which the inputs of the build do not have"
        return None

    def is_new(self, X: TensorVariable) -> TensorVariable:
        """Whether rows of X (n, d) have a label that the features do not hold, (n,)."""
        found = pt.zeros_like(X[:, 0], dtype=bool)
        for column, held in self.labels.items():
            place = pt.clip(pt.searchsorted(held, X[:, column]), 0, len(held) - 1)
            found = found | pt.neq(pt.constant(held)[place], X[:, column])
        return found

    def check(self, X: np.ndarray) -> None:
        """Raise ValueError for inputs (n, d) beyond the range, or with a label that no feature holds."""
        if text := self.unknown(X):
            raise ValueError(f"{text}: call gp.build(X), before the likelihood, on inputs with all labels")
        X = self.turned(X)
        columns = self._columns_beyond(X)
        if len(columns):
            j = columns[0]
            raise ValueError(
                f"column {j} of X reaches from {X[:, j].min():.4g} to {X[:, j].max():.4g}, but the GP "
                f"was built on inputs between {self.low[j]:.4g} and {self.high[j]:.4g}, beyond which "
                "its features hold no prior variance: call gp.build(X), before the likelihood, on inputs "
                "that cover these"
            )

    def guard(self, X: TensorVariable, rows: TensorVariable) -> TensorVariable:
        """`rows`, computed from X, behind the same check of X, which may be replaced."""
        X, (low, high) = self.turned(X), self._with_margin()
        inside = (X >= low).all() & (X <= high).all()
        return Refuse(_REPLACED)(rows, inside & ~self.is_new(X).any() if self.labels else inside)

    def check_replaced(self, X: np.ndarray) -> None:
        """Raise ValueError for inputs (n, d) beyond the range that replaced the training inputs."""
        if len(X) and (len(self._columns_beyond(self.turned(X))) or self.unknown(X)):
            raise ValueError(_REPLACED)


def in_words(labels: np.ndarray) -> str:
    """The first five of some labels."""
    return ", ".join(f"{label:g}" for label in labels[:5]) + ", ..." * (len(labels) > 5)


def _missed(feature_map, X: np.ndarray, point=None, model=None) -> np.ndarray:
    """Shares (n,) of the prior variance at rows X (n, d) that the features do not explain."""
    X = pt.constant(X)
    phi, prior = evaluate([feature_map.features(X), feature_map.kernel_diag(X)], point, model)
    explained = (phi**2).sum(axis=1)
    return 1.0 - np.divide(explained, prior, out=np.ones_like(prior), where=prior != 0.0)


def missing_share(feature_map, data) -> float:
    """Mean share of prior variance that features do not explain at rows of the data, initially."""
    return float(_missed(feature_map, some_rows(data.value, feature_map.block_rows)).mean())


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
    values, rows = point(), pt.constant(ends)
    lost = _missed(feature_map, ends, values, model).max()
    if lost <= MISSING_SHARE:
        return
    (own,) = evaluate([feature_map.missed(rows, feature_map.features(rows))], values, model)
    there = (
        f"return to the mean function and the prior variance, of which the features lose {lost:.0%}"
        if own.any()
        else "stay what they are at the edge, and their variances lose up to "
        f"""{lost:.0%} of the prior's: take approx="VIF" or another class"""
    )
    warn(f"Xnew lies outside what the approximation covers: {text}. Predictions there {there}")


def warn_together(feature_map, X: np.ndarray, point=dict, model=None) -> None:
    """Warn when rows of inputs X (n, d) share a label that the features do not hold.

    What features miss of a row's variance counts as its own, so that such rows covary too little.
    """
    for column, held in feature_map.labels.items():
        labels, place, counts = np.unique(X[:, column], return_inverse=True, return_counts=True)
        new = (counts > 1) & ~np.isin(labels, held)
        if not new.any():
            continue
        lost = _missed(feature_map, some_rows(X[new[place]], feature_map.block_rows), point(), model).max()
        if lost > MISSING_SHARE:
            warn(
                f"Xnew has several rows with {in_words(labels[new])} in column {column}, which no feature "
                f"holds: each row's mean and variance stand, but {lost:.0%} of the prior variance is "
                "independent between those rows, in covariances and joint draws. Build the GP on inputs "
                "that have them, gp.build(np.concatenate([X, Xnew])), before the likelihood; or take "
                'neighbors, by approx="VIF" or sgp.VecchiaMarginal'
            )
