"""Kernel matrix that NumPy computes, as an Op without a gradient in the inputs."""

from collections.abc import Callable

import numba
import numpy as np
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._jax import jax, register_jax


class NumericGram(GufuncOp):
    """Kernel matrix of numbers that NumPy computes: it has no gradient in the inputs."""

    matrix: Callable[[np.ndarray, np.ndarray], np.ndarray]

    __props__ = ("matrix",)
    gufunc_signature = "(n,d),(m,d)->(n,m)"

    def cast(self, place, tensor):
        """Inputs are taken as they are."""
        return tensor

    def values(self, X, Z) -> np.ndarray:
        """The matrix; what overflows there does so in silence, as in compiled code."""
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(self.matrix(X, Z), dtype="float64")

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = self.values(*inputs)

    def connection_pattern(self, node):
        return [[False], [False]]


@nb.register_funcify_and_cache_key(NumericGram)
def numba_numeric_gram(op, node=None, **kwargs):
    values = op.values

    # The kernel is Python: it is called, not compiled, and nothing is kept on disk.
    @nb.numba_njit
    def numeric_gram(X, Z):
        with numba.objmode(out="float64[:,::1]"):
            out = values(X, Z)
        return out

    return numeric_gram, None


@register_jax(NumericGram, differentiable=False)
def jax_numeric_gram(op):
    def values(a, b):
        return op.values(np.asarray(a), np.asarray(b))

    def forward(X, Z):
        # A gradient in other columns comes by here too, of which a callback must not hear.
        fixed = map(jax.lax.stop_gradient, (X, Z))
        shape = jax.ShapeDtypeStruct((X.shape[0], Z.shape[0]), "float64")
        return jax.pure_callback(values, shape, *fixed, vmap_method="sequential")

    return forward
