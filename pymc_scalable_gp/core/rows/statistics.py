"""Sufficient statistics of rows under a Gaussian likelihood in a fixed basis."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pymc_scalable_gp.core.rows.triangle import triangle, without
from pymc_scalable_gp.utils.archive import read_archive, write_archive

# Number of the file's layout: another one is refused.
_FORMAT = 1
# Relative difference of the basis' values at a few inputs above which it is another basis: more than
# libraries and machines differ by, less than a change of any setting makes.
_SAME = 1e-7


@dataclass(frozen=True, eq=False)
class BasisMark:
    """Marks of a basis: values (p, k + h + 1) at some inputs (p, d), the fixed mean's last; its widths."""

    inputs: np.ndarray
    values: np.ndarray
    columns: int  # k, of the basis
    design: int  # h, of the mean

    def difference(self, other: "BasisMark") -> str | None:
        """Describe how the other basis differs; None if it does not."""
        if self.inputs.shape[1] != other.inputs.shape[1]:
            return f"inputs have {self.inputs.shape[1]} columns, not {other.inputs.shape[1]}"
        if self.columns != other.columns:
            return f"the basis has {self.columns} functions, not {other.columns}"
        if self.design != other.design:
            return f"the mean has {self.design} coefficients, not {other.design}"
        low = self.inputs.min(axis=0, initial=np.inf)
        if self.inputs.shape != other.inputs.shape or not _close(self.inputs - low, other.inputs - low):
            return "the basis covers another range of inputs"
        basis, mean = np.split(self.values, [self.columns], axis=1)
        theirs, their_mean = np.split(other.values, [self.columns], axis=1)
        if not _close(basis, theirs, axis=None):
            return "the basis' functions have other values: other points, kernel or settings"
        if not _close(mean, their_mean):
            return "the mean's functions have other values"
        return None


def _close(a, b, axis=0) -> bool:
    """Whether matrices agree, to the largest number of each column; with `axis` None to that of all."""
    both = np.abs(np.stack([a, b])).max(axis=0)
    return bool((np.abs(a - b) <= _SAME * both.max(axis=axis, initial=0.0)).all())


@dataclass(frozen=True, eq=False, repr=False)
class RowStatistics:
    r"""All that a Gaussian likelihood with one sigma needs of n rows, in a fixed basis.

    The triangle R of ``[B | H | y]``, with the basis' values B (n, k) at the rows, the columns H (n, h)
    that a linear mean multiplies, and the targets y, less a mean without parameters:

    .. math:: R^\top R = [B\,|\,H\,|\,y]^\top [B\,|\,H\,|\,y]

    It takes ``8 (k + h + 1)^2`` bytes whatever n. :meth:`FeatureMarginal.summarize` makes it, and
    ``gp.marginal_likelihood("y", statistics=stats, sigma=sigma)`` is the likelihood of all rows
    that it has seen. ``a + b`` are the statistics of the rows of both, whatever the order, and ``a - b``
    those of the rows of a that are not in b: new rows are added, and folds of a cross-validation
    taken away, without the other rows. ``sum(parts)`` works.

    Attributes
    ----------
    size : int
        Number of rows n.
    triangle : array, shape (k + h + 1, k + h + 1)
        R.
    low, high : arrays, shape (d,)
        Range of the rows' inputs; of a difference, that of the whole.
    mark : BasisMark
        What tells the basis from others.

    Notes
    -----
    R comes from QR factorisations of row blocks (TSQR), with a relative error of 1e-16 in all singular
    values, up to ``n k^2 = 5e10``; beyond, from the Gram matrix, at half the work, which knows singular
    values to 3e-8 of the largest. O(n k^2) time and O(k^2) memory either way.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.linspace(0.0, 1.0, 50)[:, None]
    >>> y = np.sin(6.0 * X[:, 0])
    >>> gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.3), rank=10, approx="DTC")
    >>> rank = gp.build(X)
    >>> parts = [gp.summarize(X[i::2], y[i::2], progressbar=False) for i in range(2)]
    >>> sum(parts).size, (sum(parts) - parts[0]).size
    (50, 25)
    >>> with pm.Model():
    ...     sigma = pm.HalfNormal("sigma", 1)
    ...     _ = gp.marginal_likelihood("y", statistics=sum(parts), sigma=sigma)
    >>> gp.likelihood_path
    'summarized'
    """

    triangle: np.ndarray
    size: int
    low: np.ndarray
    high: np.ndarray
    mark: BasisMark

    def __repr__(self):
        mark = self.mark
        mean = f", {mark.design} of the mean" if mark.design else ""
        return f"<RowStatistics: {self.size} rows, {mark.columns} basis functions{mean}>"

    def _check(self, other: "RowStatistics", verb: str) -> None:
        difference = self.mark.difference(other.mark)
        if difference:
            raise ValueError(f"cannot {verb} statistics of another basis: {difference}")

    def __add__(self, other):
        """Statistics of the rows of both."""
        if not isinstance(other, RowStatistics):
            return NotImplemented
        self._check(other, "add")
        return replace(
            self,
            triangle=triangle(np.concatenate([self.triangle, other.triangle])),
            size=self.size + other.size,
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
        )

    def __radd__(self, other):
        """``sum(parts)`` begins with 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other):
        """Statistics of the rows of this that are not in the other.

        Raises
        ------
        ValueError
            When rounding would be all that is left in some direction, or the other is no part.
        """
        if not isinstance(other, RowStatistics):
            return NotImplemented
        self._check(other, "subtract")
        if other.size >= self.size:
            raise ValueError(f"cannot take {other.size} rows from {self.size}: none would be left")
        left = without(self.triangle, other.triangle)
        return replace(self, triangle=left, size=self.size - other.size)

    def save(self, path) -> None:
        """Write to a file, NumPy's npz, under just this name: whole, or not at all."""
        own = {name: value for name, value in vars(self).items() if name != "mark"}
        write_archive(Path(path), format=_FORMAT, **own, **vars(self.mark))

    @classmethod
    def load(cls, path) -> "RowStatistics":
        """Read what :meth:`save` wrote.

        Raises
        ------
        ValueError
            For a file that is none of these, or of a version of the package with another layout.
        """
        foreign = f"{path} holds no RowStatistics: write one by their save(path)"
        names = {"format", "triangle"}
        file = read_archive(path, names, _FORMAT, foreign, "summarise the rows again")
        mark = BasisMark(file["inputs"], file["values"], int(file["columns"]), int(file["design"]))
        return cls(file["triangle"], int(file["size"]), file["low"], file["high"], mark)
