"""Sums over the rows of each segment (task, group), and products of each row with its segment's matrix."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.ops._base import GufuncOp, integers
from pymc_scalable_gp.ops._jax import jax, jax_form, jnp
from pymc_scalable_gp.ops._numba import numba_form
from pymc_scalable_gp.utils.checks import check_count


class _Segmented(GufuncOp):
    """What the two have in common: rows of segments 0 to `count` - 1, two matrices, no gradient in them."""

    __props__ = ("count",)
    discrete = (2,)

    def lengths(self):
        return {"s": self.count}


class SegmentGram(_Segmented):
    """Value of `segment_gram`."""

    gufunc_signature = "(n,a),(n,b),(n)->(s,a,b)"

    def perform(self, node, inputs, output_storage):
        A, W, segment = inputs
        out = np.zeros((self.count, A.shape[1], W.shape[1]))
        for s, rows in _rows(segment, self.count):
            out[s] = A[rows].T @ W[rows]
        output_storage[0][0] = out if _inside(segment, self.count) else np.full_like(out, np.nan)

    def pullback(self, inputs, outputs, cotangents):
        """``dA_i = G_s w_i`` and ``dW_i = G_s' a_i``."""
        (A, W, segment), (g,), times = inputs, cotangents, SegmentTimes(self.count)
        return [times(g, W, segment), times(g.transpose((0, 2, 1)), A, segment)]


class SegmentTimes(_Segmented):
    """Value of `segment_times`."""

    gufunc_signature = "(s,a,b),(n,b),(n)->(n,a)"

    def perform(self, node, inputs, output_storage):
        G, W, segment = inputs
        out = np.zeros((len(W), G.shape[1]))
        for s, rows in _rows(segment, self.count):
            out[rows] = W[rows] @ G[s].T
        output_storage[0][0] = out if _inside(segment, self.count) else np.full_like(out, np.nan)

    def pullback(self, inputs, outputs, cotangents):
        """``dG_s = sum g_i w_i'`` and ``dW_i = G_s' g_i``."""
        (G, W, segment), (g,) = inputs, cotangents
        back = SegmentTimes(self.count)(G.transpose((0, 2, 1)), g, segment)
        return [SegmentGram(self.count)(g, W, segment), back]


def segment_gram(A, W, segment, count):
    r"""Sum of outer products over the rows of each segment, ``out_s = sum_{i in s} a_i w_i'``.

    Parameters
    ----------
    A : tensor, shape (n, a)
    W : tensor, shape (n, b)
    segment : integer tensor, shape (n,)
        Segment of each row, in any order.
    count : int
        Number of segments; those without rows give zeros. A row outside 0..count - 1 makes all NaN.

    Returns
    -------
    tensor, shape (count, a, b)
        Differentiable in A and W, any number of times.

    Notes
    -----
    O(n a b); nothing of size n x a x b.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A, segment = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]), np.array([0, 1, 0])
    >>> sgp.ops.segment_gram(A, A, segment, 2).eval()[0]
    array([[ 2.,  4.],
           [ 4., 10.]])
    >>> A[[0, 2]].T @ A[[0, 2]]
    array([[ 2.,  4.],
           [ 4., 10.]])
    """
    return SegmentGram(check_count("count", count, 0))(A, W, integers("segment", segment))


def segment_times(G, W, segment):
    """Product of each row with its segment's matrix, ``out_i = G_s w_i`` (n, a).

    Parameters
    ----------
    G : tensor, shape (s, a, b)
        With a known number of segments.
    W : tensor, shape (n, b)
    segment : integer tensor, shape (n,)
        As in :func:`segment_gram`.

    Returns
    -------
    tensor, shape (n, a)
        Differentiable in G and W, any number of times.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> G, W = np.stack([np.eye(2), 10.0 * np.eye(2)]), np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> sgp.ops.segment_times(G, W, np.array([1, 0])).eval()
    array([[10., 20.],
           [ 3.,  4.]])
    """
    G = pt.as_tensor_variable(G)
    count = G.type.shape[0] if G.ndim else None
    if count is None:
        raise TypeError(
            f"G must have a known number of segments, got shape {G.type.shape}: give it by "
            "pt.specify_shape(G, (count, None, None))"
        )
    return SegmentTimes(count)(G, W, integers("segment", segment))


def _rows(segment, count):
    """Segments that have rows, each with them."""
    order = np.argsort(segment, kind="stable")
    bounds = np.searchsorted(segment[order], np.arange(count + 1))
    for s in np.flatnonzero(np.diff(bounds)):
        yield s, order[bounds[s] : bounds[s + 1]]


def _inside(segment, count):
    return not len(segment) or (segment.min() >= 0 and segment.max() < count)


@numba_form(SegmentGram)
def _gram_loop(A, W, segment, count):
    (n, a), b = A.shape, W.shape[1]
    out = np.zeros((count, a, b))
    for i in range(n):
        s = segment[i]
        if s < 0 or s >= count:
            return np.full((count, a, b), np.nan)
        for j in range(a):
            for k in range(b):
                out[s, j, k] += A[i, j] * W[i, k]
    return out


@numba_form(SegmentTimes)
def _times_loop(G, W, segment, count):
    (n, b), a = W.shape, G.shape[1]
    out = np.zeros((n, a))
    for i in range(n):
        s = segment[i]
        if s < 0 or s >= count:
            return np.full((n, a), np.nan)
        for j in range(a):
            for k in range(b):
                out[i, j] += G[s, j, k] * W[i, k]
    return out


def _nan_outside(out, segment, count):
    return jnp.where(jnp.all((segment >= 0) & (segment < count)), out, jnp.nan)


@jax_form(SegmentGram)
def _jax_gram(A, W, segment, count):
    zeros = jnp.zeros((count, A.shape[1]))
    columns = jax.lax.map(lambda w: zeros.at[segment].add(A * w[:, None]), W.T)
    return _nan_outside(jnp.moveaxis(columns, 0, 2), segment, count)


@jax_form(SegmentTimes)
def _jax_times(G, W, segment, count):
    def add(total, column):
        g, w = column
        return total + g[segment] * w[:, None], None

    start = jnp.zeros((W.shape[0], G.shape[1]))
    out, _ = jax.lax.scan(add, start, (jnp.moveaxis(G, 2, 0), W.T))
    return _nan_outside(out, segment, count)
