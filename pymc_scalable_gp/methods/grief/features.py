"""GP-GRIEF's feature map."""

from collections.abc import Sequence
from typing import NamedTuple

from pymc_scalable_gp.core.features.eigenfunctions import EigenfunctionMap, TermGrid, is_constant
from pymc_scalable_gp.core.features.reach import MISSING_SHARE
from pymc_scalable_gp.methods.grief.waves import WaveTerm
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
        parts = [f"{share:.0%} because {cause}" for cause, share in causes.items() if share > 0.1 * total]
        warn(
            f"the features do not explain {total:.0%} of the prior variance at the point of build, "
            f"{' and '.join(parts)}: sigma may be estimated too large. If the hyperparameters there are "
            "unlikely, build at better ones: gp.build(X, point=sgp.subset_map(...))"
        )


class GriefMap(EigenfunctionMap):
    """Leading eigenfunctions of product kernels on a grid, Fourier series; a `rotation` combines them."""

    def __init__(self, cov_func, grids: Sequence[TermGrid | WaveTerm], missing: Missing, columns: int):
        super().__init__(cov_func, grids, columns)
        self.missing = missing

    @property
    def rank(self):
        if self.rotation is not None:
            return len(self.rotation.values)
        return super().rank

    def features(self, X):
        phi = self.basis(X)
        return phi if self.rotation is None else phi @ self.rotation.vectors

    def basis(self, X):
        """Eigenfunctions (n, r) before any rotation."""
        return super().features(X)

    @property
    def is_constant(self):
        """Whether the features depend on the inputs alone, on no parameter and no shared value."""
        return all(is_constant(grid.term) for grid in self.grids)
