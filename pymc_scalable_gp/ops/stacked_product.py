"""Products of stacked matrices, ``out_i = op(A_i) op(B_i)``."""

import pytensor.tensor as pt
from numba.extending import register_jitable

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._jax import jax_form
from pymc_scalable_gp.ops._kernels import empty_matrix, multiply_any
from pymc_scalable_gp.ops._numba import contiguous, numba_form


class StackedProduct(GufuncOp):
    """Stack of matrix products, either factor transposed or not (see `stacked_product`)."""

    __props__ = ("transpose_a", "transpose_b")

    def __init__(self, transpose_a=False, transpose_b=False):
        self.transpose_a, self.transpose_b = bool(transpose_a), bool(transpose_b)
        a, b = "(d,m,p)" if transpose_a else "(d,p,m)", "(d,q,m)" if transpose_b else "(d,m,q)"
        self.gufunc_signature = f"{a},{b}->(d,p,q)"

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = _products(*inputs, *self.options())

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
    transpose_a, transpose_b : bool
        Whether `a` or `b` is: it has shape (d, m, p) or (d, q, m), and its transposes are multiplied.

    Returns
    -------
    tensor, shape (d, p, q)

    Notes
    -----
    The same as ``pt.matmul``, which Numba takes far longer to compile in PyTensor 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> a = np.array([[[0.0, 1.0], [2.0, 3.0]]])
    >>> sgp.ops.stacked_product(a, a, transpose_b=True).eval()
    array([[[ 1.,  3.],
            [ 3., 13.]]])
    >>> a[0] @ a[0].T
    array([[ 1.,  3.],
           [ 3., 13.]])
    """
    return StackedProduct(transpose_a, transpose_b)(a, b)


def product(a, b, *, transpose_a: bool = False, transpose_b: bool = False):
    """``op(a) @ op(b)`` for two matrices, or for a matrix and a vector, by a stack of one.

    Compiles in a fraction of the time that Numba takes for a product of PyTensor 3.3.
    """
    a, b = pt.as_tensor(a), pt.as_tensor(b)
    if b.ndim == 1:
        return product(a, b[:, None], transpose_a=transpose_a)[:, 0]
    return stacked_product(a[None], b[None], transpose_a=transpose_a, transpose_b=transpose_b)[0]


@jax_form(StackedProduct, differentiable=False)
def _products(a, b, transpose_a, transpose_b):
    a = a.swapaxes(1, 2) if transpose_a else a
    return a @ (b.swapaxes(1, 2) if transpose_b else b)


@register_jitable
def _ordered(a):
    """The matrix itself if it is C-ordered, or its transpose if that is, or a copy; and which of them."""
    if a.strides[0] == a.itemsize and a.strides[1] != a.itemsize:
        return contiguous(a.T), True
    return contiguous(a), False


@numba_form(StackedProduct, strided=(0, 1))
def _product_loop(a, b, transpose_a, transpose_b):
    rows = a.shape[2] if transpose_a else a.shape[1]
    columns = b.shape[1] if transpose_b else b.shape[2]
    out = empty_matrix(a.shape[0] * rows, columns).reshape((a.shape[0], rows, columns))
    for i in range(a.shape[0]):
        (left, turned_a), (right, turned_b) = _ordered(a[i]), _ordered(b[i])
        multiply_any(left, right, transpose_a != turned_a, transpose_b != turned_b, out[i])
    return out
