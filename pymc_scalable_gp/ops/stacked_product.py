"""Products of stacked matrices, ``out_i = op(A_i) op(B_i)``."""

import numpy as np
from numba.extending import register_jitable
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._jax import jnp, register_jax
from pymc_scalable_gp.ops._kernels import multiply_any
from pymc_scalable_gp.ops._numba import register_numba


class StackedProduct(GufuncOp):
    """Stack of matrix products, either factor transposed or not (see `stacked_product`)."""

    __props__ = ("transpose_a", "transpose_b")

    def __init__(self, transpose_a=False, transpose_b=False):
        self.transpose_a, self.transpose_b = bool(transpose_a), bool(transpose_b)
        a, b = "(d,m,p)" if transpose_a else "(d,p,m)", "(d,q,m)" if transpose_b else "(d,m,q)"
        self.gufunc_signature = f"{a},{b}->(d,p,q)"

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = _stacked(*inputs, self.transpose_a, self.transpose_b)

    def pullback(self, inputs, outputs, cotangents):
        """``d op(A) = G op(B)'`` and ``d op(B) = op(A)' G``, stack by stack."""
        (a, b), (g,) = inputs, cotangents
        ta, tb = self.transpose_a, self.transpose_b
        a_bar = StackedProduct(tb, True)(b, g) if ta else StackedProduct(False, not tb)(g, b)
        b_bar = StackedProduct(True, ta)(g, a) if tb else StackedProduct(not ta, False)(a, g)
        return [a_bar, b_bar]


def stacked_product(a, b, *, transpose_a: bool = False, transpose_b: bool = False):
    """Matrix products ``op(a[i]) @ op(b[i])`` of two stacks.

    Parameters
    ----------
    a, b : tensors, shapes (d, p, m) and (d, m, q), or with the last two transposed
        As told by `transpose_a` and `transpose_b`.

    Returns
    -------
    tensor, shape (d, p, q)

    Notes
    -----
    The same as ``pt.matmul``, which PyTensor 3.3 takes half a minute to compile with Numba.
    """
    return StackedProduct(transpose_a, transpose_b)(a, b)


@register_jitable
def _stacked(a, b, transpose_a, transpose_b):
    rows = a.shape[2] if transpose_a else a.shape[1]
    columns = b.shape[1] if transpose_b else b.shape[2]
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    out = np.zeros((a.shape[0], rows, columns))
    for i in range(a.shape[0]):
        multiply_any(a[i], b[i], transpose_a, transpose_b, out[i])
    return out


@register_numba(StackedProduct)
def numba_stacked_product(op):
    transpose_a, transpose_b = op.transpose_a, op.transpose_b

    @nb.numba_njit
    def stacked_product(a, b):
        return _stacked(a, b, transpose_a, transpose_b)

    return stacked_product


@register_jax(StackedProduct, differentiable=False)
def jax_stacked_product(op):
    def forward(a, b):
        a = a.swapaxes(1, 2) if op.transpose_a else a
        b = b.swapaxes(1, 2) if op.transpose_b else b
        return jnp.matmul(a, b)

    return forward
