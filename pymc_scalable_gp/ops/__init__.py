"""Ops with hand-written gradients in Python, Numba and JAX, as functions of tensors."""

from pymc_scalable_gp.ops.eigh_sorted import eigh_sorted
from pymc_scalable_gp.ops.khatri_rao import khatri_rao_features
from pymc_scalable_gp.ops.lanczos import lanczos
from pymc_scalable_gp.ops.log_quadrature import log_quadrature
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.softmax_interpolation import softmax_interpolation
from pymc_scalable_gp.ops.stacked_product import stacked_product
from pymc_scalable_gp.ops.stochastic_logdet import stochastic_logdet
from pymc_scalable_gp.ops.toeplitz import toeplitz_matvec

__all__ = [
    "eigh_sorted",
    "khatri_rao_features",
    "lanczos",
    "log_quadrature",
    "lowrank_logp",
    "softmax_interpolation",
    "stacked_product",
    "stochastic_logdet",
    "toeplitz_matvec",
]
