"""GP-GRIEF's feature map."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors

from pymc_scalable_gp.core.features.feature_map import FeatureMap, side_by_side
from pymc_scalable_gp.core.features.reach import MISSING_SHARE, InputRange
from pymc_scalable_gp.core.features.singular import Singular
from pymc_scalable_gp.core.rows.triangle import RowFunction, triangle_of_rows
from pymc_scalable_gp.methods.grief.eigenfunctions import TermGrid
from pymc_scalable_gp.methods.grief.waves import WaveTerm
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.warn import warn


class Missing(NamedTuple):
    """Shares of the prior variance that the features miss, on the rows and at the point of the fit."""

    nodes: float  # lies between the grid's nodes
    rank: float  # belongs to eigenfunctions that were left out

    def warn(self, rank: int) -> None:
        """Warn where the features leave much of the prior variance unexplained, with what to change."""
        total = self.nodes + self.rank
        if total <= MISSING_SHARE:
            return
        causes = {
            f"the rank is too low (raise rank=, now {rank})": self.rank,
            "the grid is too coarse (give a finer grid=)": self.nodes,
        }
        parts = [
            f"{share:.0%} because {cause}" for cause, share in causes.items() if share > 0.1 * total
        ]
        warn(
            f"the features do not explain {total:.0%} of the prior variance at the point of build, "
            f"{' and '.join(parts)}: sigma may be estimated too large. If the hyperparameters there are "
            "unlikely, build at better ones: gp.build(X, point=sgp.subset_map(...))"
        )


class GriefMap(FeatureMap):
    """Leading eigenfunctions of a (sum of) product kernel(s) on a Cartesian grid, and Fourier series.

    Its attributes never change. :meth:`rotated` gives another map, whose basis is orthogonal on some rows.
    """

    def __init__(
        self, cov_func, grids: Sequence[TermGrid | WaveTerm], missing: Missing, columns: int,
        rotation: Singular | None = None,
    ):  # fmt: skip
        self.cov_func, self.grids, self.columns = cov_func, tuple(grids), columns
        self.missing, self.rotation = missing, rotation

    @property
    def rank(self):
        if self.rotation is not None:
            return len(self.rotation.values)
        return sum(grid.rank for grid in self.grids)

    def features(self, X):
        phi = self.basis(X)
        return phi if self.rotation is None else phi @ self.rotation.vectors

    def basis(self, X):
        """Eigenfunctions (n, r) before any rotation."""
        return side_by_side([grid.features(X) for grid in self.grids])

    @property
    def is_constant(self):
        """Whether the features depend on the inputs alone, on no parameter and no shared value."""
        return all(is_constant(grid.term) for grid in self.grids)

    @property
    def input_range(self):
        """Ends of the grid; infinite for columns that the kernel does not use."""
        low, high = np.full(self.columns, -np.inf), np.full(self.columns, np.inf)
        for grid in self.grids:
            for nodes, dim in zip(grid.nodes, grid.term.dims, strict=True):
                low[dim], high[dim] = nodes.min(), nodes.max()
        return InputRange(low, high)

    def rotated(self, rotation: Singular) -> "GriefMap":
        """The map with the eigenfunctions combined by `rotation`."""
        return GriefMap(self.cov_func, self.grids, self.missing, self.columns, rotation)

    def rotation_on(self, X: np.ndarray, progressbar: bool = True) -> Singular:
        """The rotation that makes the eigenfunctions orthogonal on the rows of X (n, d)."""
        triangle = triangle_of_rows(RowFunction(self.basis), X, None, progressbar)
        return Singular.of(triangle)[0]

    def outside(self, X):
        text = self.input_range.outside(X, "the grid")
        return text and f"{text} (a wider grid covers it)"


def is_constant(term) -> bool:
    """Whether a product term depends on no random variable and no shared value."""
    point = pt.zeros((len(term.dims), 1))
    outputs = [term.scale, term.gram(point, point)] if term.dims else [term.scale]
    shared = any(isinstance(v, SharedVariable) for v in ancestors(outputs))
    return not shared and not is_random(*outputs)
