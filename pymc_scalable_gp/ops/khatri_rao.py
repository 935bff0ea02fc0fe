"""Products of selected columns: ``Phi[:, j] = prod_i F[:, idx[j, i]]``, without division."""

from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._elementwise import add_product, set_product
from pymc_scalable_gp.ops._jax import jax, jax_form, jnp
from pymc_scalable_gp.ops._kernels import empty_matrix
from pymc_scalable_gp.ops._numba import in_numba, one_source
from pymc_scalable_gp.utils.graphs import fixed_shared

_NUMBA_BLOCK = 128


class KhatriRaoFeatures(GufuncOp):
    """Selected columns of a row-wise Khatri-Rao product (docstring of `khatri_rao_features`).

    Works on transposes: `factors_t` (M, n) and the result (r, n) hold one feature a row, so that
    every product runs over contiguous data points. `tree` is the plan made from `idx`.
    """

    gufunc_signature = "(M,n),(r,d),(steps,three)->(r,n)"
    discrete = (1, 2)

    def pullback(self, inputs, outputs, cotangents):
        """``dF[:, k] = sum over features j that use k of dPhi[:, j] * (the other factors of j)``."""
        return [KhatriRaoGrad()(*inputs, *cotangents)]


class KhatriRaoGrad(GufuncOp):
    """Reverse sweep of :class:`KhatriRaoFeatures` through its tree of partial products."""

    gufunc_signature = "(M,n),(r,d),(steps,three),(r,n)->(M,n)"
    discrete = (1, 2)


class ColumnProducts(NamedTuple):
    """Which columns are multiplied: multi-indices (r, d), and their tree (see `product_tree`)."""

    idx: TensorVariable
    tree: TensorVariable

    @classmethod
    def of(cls, idx) -> "ColumnProducts":
        """Products of multi-indices (r, d), which are data of the graph: others need no new code."""
        return cls(*map(fixed_shared, _tables(idx)))


def _tables(idx) -> tuple[np.ndarray, np.ndarray]:
    """Checked multi-indices, and their tree."""
    idx = np.asarray(idx)
    if idx.ndim != 2 or idx.shape[1] == 0 or not np.issubdtype(idx.dtype, np.integer):
        raise ValueError(f"idx must hold integers (r, d >= 1), got {idx.dtype} {idx.shape}")
    if idx.size and idx.min() < 0:
        raise ValueError(f"idx must count the columns of factors from 0, got {idx.min()}")
    idx = idx.astype(np.int64)
    return idx, product_tree(idx)


def khatri_rao_features(factors, idx):
    r"""Products of selected columns, one from each group: the features of a product kernel.

    .. math:: \Phi_{aj} = \prod_{i=1}^{d} F_{a,\,\mathrm{idx}[j, i]}

    Parameters
    ----------
    factors : tensor, shape (n, M)
        All 1-D factors side by side. The transpose of a C-ordered (M, n) array costs no copy.
    idx : integer array, shape (r, d), or ColumnProducts
        Feature j multiplies the d columns ``idx[j]`` of `factors`. Numbers, not symbolic: constants
        of the graph, or, as `ColumnProducts.of` makes them, its data.

    Returns
    -------
    tensor, shape (n, r)
        Differentiable with respect to `factors`. No division: factors may be zero. NaN if `idx` turns
        out to point beyond the columns of `factors`.

    Raises
    ------
    ValueError
        If `idx` is not a matrix of integers, has d = 0 columns, or points to a column that `factors`
        do not have.

    Notes
    -----
    The columns are multiplied along a binary tree over the d positions and each *distinct*
    partial product is computed once. Indices of leading eigenfunctions mostly agree, so the cost
    is near n r, not n r d; the gradient costs about three times as much. Memory: the result and
    one block of rows.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> factors = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    >>> idx = np.array([[0, 2], [1, 3]])  # columns 0 and 2, then 1 and 3
    >>> sgp.ops.khatri_rao_features(factors, idx).eval()
    array([[ 3.,  8.],
           [35., 48.]])
    """
    factors = pt.as_tensor_variable(factors)
    if not isinstance(idx, ColumnProducts):
        idx, tree = _tables(idx)
        width, last = factors.type.shape[-1], idx.max(initial=-1)
        if width is not None and last >= width:
            raise ValueError(f"idx has column {last} of factors, which have {width} columns")
        idx = ColumnProducts(pt.constant(idx), pt.constant(tree))
    return KhatriRaoFeatures()(factors.T, *idx).T


def product_tree(idx: np.ndarray) -> np.ndarray:
    """Binary tree of distinct partial products for multi-indices (r, d).

    Row 0 is ``(number of columns used, 0, 0)``. The other rows are steps ``(target, left, right)``:
    slot `target` is the product of two earlier slots (``-1``: of one). The first slots are the used
    columns of F; the last r steps are the features in order and have no slot of their own.
    """
    labels = [idx[:, i] for i in range(idx.shape[1])]
    free = int(idx.max(initial=-1)) + 1
    steps = [np.array([[free, 0, 0]])]
    while len(labels) > 2:
        merged = []
        for a, b in zip(labels[::2], labels[1::2], strict=False):
            pairs, place = np.unique(np.stack([a, b], axis=1), axis=0, return_inverse=True)
            targets = free + np.arange(len(pairs))
            steps.append(np.column_stack([targets, pairs]))
            merged.append(targets[place.ravel()])
            free += len(pairs)
        labels = merged + labels[len(merged) * 2 :]
    last = labels[1] if len(labels) == 2 else np.full(len(idx), -1)
    steps.append(np.column_stack([np.full(len(idx), -1), labels[0], last]))
    return np.concatenate(steps).astype(np.int64)


@register_jitable
def _inner_products(factors_t, tree, inner, start, stop, values):
    """Slots below the features for data points start:stop; `values` (slots, block)."""
    width = stop - start
    for k in range(tree[0, 0]):
        values[k, :width] = factors_t[k, start:stop]
    for s in range(1, inner + 1):
        target, left, right = tree[s]
        set_product(values[target, :width], values[left, :width], values[right, :width])


@register_jitable
def _slots(tree, inner):
    return tree[0, 0] if inner == 0 else tree[inner, 0] + 1


def _block(n):
    """Rows at a time: in Python all, in Numba those whose partial products stay in a core's cache."""
    return max(n, 1)


@in_numba(_block)
def _numba_block(n):
    return _NUMBA_BLOCK


@one_source(KhatriRaoFeatures)
def _features(factors_t, idx, tree):
    r, n = idx.shape[0], factors_t.shape[1]
    block = _block(n)
    inner = tree.shape[0] - r - 1
    out = empty_matrix(r, n)
    if tree[0, 0] > factors_t.shape[0]:
        out[:] = np.nan
        return out
    values = np.empty((_slots(tree, inner), min(block, n)))
    for start in range(0, n, block):
        stop = min(start + block, n)
        width = stop - start
        _inner_products(factors_t, tree, inner, start, stop, values)
        for j in range(r):
            _target, left, right = tree[inner + 1 + j]
            if right < 0:
                out[j, start:stop] = values[left, :width]
            else:
                set_product(out[j, start:stop], values[left, :width], values[right, :width])
    return out


@one_source(KhatriRaoGrad)
def _features_grad(factors_t, idx, tree, g):
    r, n = g.shape
    block = _block(n)
    inner = tree.shape[0] - r - 1
    out = np.zeros(factors_t.shape)
    if tree[0, 0] > factors_t.shape[0]:
        out[:] = np.nan
        return out
    slots = _slots(tree, inner)
    values, bars = np.empty((slots, min(block, n))), np.empty((slots, min(block, n)))
    for start in range(0, n, block):
        stop = min(start + block, n)
        width = stop - start
        _inner_products(factors_t, tree, inner, start, stop, values)
        bars[:] = 0.0
        for j in range(r):
            _target, left, right = tree[inner + 1 + j]
            if right < 0:
                bars[left, :width] += g[j, start:stop]
            else:
                add_product(bars[left, :width], g[j, start:stop], values[right, :width])
                add_product(bars[right, :width], g[j, start:stop], values[left, :width])
        for t in range(inner):
            target, left, right = tree[inner - t]
            add_product(bars[left, :width], bars[target, :width], values[right, :width])
            add_product(bars[right, :width], bars[target, :width], values[left, :width])
        for k in range(tree[0, 0]):
            out[k, start:stop] = bars[k, :width]
    return out


def _jax_products(factors_t, idx):
    """Features (r, n), some data points at a time: no d arrays (r, n) live."""
    n, size = factors_t.shape[1], min(factors_t.shape[1], 4096)
    if idx.shape[0] * n == 0:
        return jnp.zeros((idx.shape[0], n))

    @jax.checkpoint
    def product(part):
        out = part[idx[:, 0]]
        for i in range(1, idx.shape[1]):
            out = out * part[idx[:, i]]
        return out

    parts = jnp.pad(factors_t, ((0, 0), (0, -n % size))).reshape((len(factors_t), -1, size))
    blocks = jax.lax.map(product, parts.swapaxes(0, 1))
    return blocks.swapaxes(0, 1).reshape((idx.shape[0], -1))[:, :n]


@jax_form(KhatriRaoFeatures)
def _jax_features(factors_t, idx, tree):
    return jnp.where(tree[0, 0] > len(factors_t), jnp.nan, _jax_products(factors_t, idx))


@jax_form(KhatriRaoGrad, differentiable=False)
def _jax_features_grad(factors_t, idx, tree, g):
    out = jax.vjp(lambda f: _jax_products(f, idx), factors_t)[1](g)[0]
    return jnp.where(tree[0, 0] > len(factors_t), jnp.nan, out)
