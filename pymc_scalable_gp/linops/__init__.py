"""Structured matrices as small immutable expressions of tensors.

Examples
--------
>>> import numpy as np
>>> import pymc_scalable_gp as sgp
>>> axis = sgp.linops.Toeplitz(np.exp(-np.arange(100.0)))
>>> K = sgp.linops.Kronecker([axis, axis]).add_diagonal(0.1)
>>> K.shape
(10000, 10000)
>>> (K @ np.ones(10_000)).eval().shape
(10000,)
"""

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
