"""Ops with hand-written gradients in Python, Numba and JAX, as functions of tensors.

Examples
--------
>>> import numpy as np
>>> import pytensor.tensor as pt
>>> import pymc_scalable_gp as sgp
>>> column = pt.vector("column", shape=(2,))
>>> total = sgp.ops.toeplitz_matvec(column, np.array([1.0, 3.0])).sum()
>>> pt.grad(total, column).eval({column: np.array([2.0, 1.0])}).round(3)
array([4., 4.])
"""

from pymc_scalable_gp.ops.cubic_interpolation import cubic_interpolation
from pymc_scalable_gp.ops.gaussian_logp import gaussian_logp
from pymc_scalable_gp.ops.hadamard import hadamard_matvec, row_kronecker_apply, row_kronecker_project
from pymc_scalable_gp.ops.khatri_rao import khatri_rao_features
from pymc_scalable_gp.ops.kronecker_logp import kronecker_logp
from pymc_scalable_gp.ops.lanczos import lanczos
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.markov_logp import markov_logp
from pymc_scalable_gp.ops.qr_solve import qr_solve
from pymc_scalable_gp.ops.segments import segment_gram, segment_times
from pymc_scalable_gp.ops.softmax_interpolation import softmax_interpolation
from pymc_scalable_gp.ops.square_distances import square_distances
from pymc_scalable_gp.ops.stacked_cholesky import inverse_cholesky, stacked_cholesky
from pymc_scalable_gp.ops.stacked_product import stacked_product
from pymc_scalable_gp.ops.stacked_solve import stacked_solve
from pymc_scalable_gp.ops.stationary_factor import stationary_factor
from pymc_scalable_gp.ops.stationary_kernel import stationary_kernel
from pymc_scalable_gp.ops.stochastic_logdet import stochastic_logdet
from pymc_scalable_gp.ops.toeplitz import toeplitz_matvec
from pymc_scalable_gp.ops.vecchia_color import vecchia_color
from pymc_scalable_gp.ops.vecchia_factor import vecchia_factor
from pymc_scalable_gp.ops.vecchia_whiten import vecchia_whiten
from pymc_scalable_gp.ops.whitened_columns import whitened_columns

__all__ = [
    "cubic_interpolation",
    "gaussian_logp",
    "hadamard_matvec",
    "inverse_cholesky",
    "khatri_rao_features",
    "kronecker_logp",
    "lanczos",
    "lowrank_logp",
    "markov_logp",
    "qr_solve",
    "row_kronecker_apply",
    "row_kronecker_project",
    "segment_gram",
    "segment_times",
    "softmax_interpolation",
    "square_distances",
    "stacked_cholesky",
    "stacked_product",
    "stacked_solve",
    "stationary_factor",
    "stationary_kernel",
    "stochastic_logdet",
    "toeplitz_matvec",
    "vecchia_color",
    "vecchia_factor",
    "vecchia_whiten",
    "whitened_columns",
]
