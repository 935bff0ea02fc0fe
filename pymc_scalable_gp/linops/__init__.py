"""Structured matrices as small immutable expressions of tensors."""

from pymc_scalable_gp.linops.base import Diagonal, LinearOperator, Scaled, Sum
from pymc_scalable_gp.linops.preconditioner import LowRankPreconditioner
from pymc_scalable_gp.linops.structured import Dense, Kronecker, LowRank, Masked, Toeplitz

__all__ = [
    "Dense",
    "Diagonal",
    "Kronecker",
    "LinearOperator",
    "LowRank",
    "LowRankPreconditioner",
    "Masked",
    "Scaled",
    "Sum",
    "Toeplitz",
]
