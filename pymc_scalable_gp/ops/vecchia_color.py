"""Draws from regressions of blocks of rows on their neighbours: the inverse of the whitening."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.ops import _vecchia_batches as batches
from pymc_scalable_gp.ops._array_op import ArrayOp
from pymc_scalable_gp.ops._base import integers
from pymc_scalable_gp.ops._jax import jax, jnp
from pymc_scalable_gp.ops._numba import numba_form
from pymc_scalable_gp.ops._small import multiply_small
from pymc_scalable_gp.ops._vecchia_blocks import blocks_fit, corner, count_known, own_rows, take_rows


class VecchiaColor(ArrayOp):
    """``Y_b = A_b Y_N + L_b Z_b``, one block after the other (see `vecchia_color`)."""

    gufunc_signature = "(p,q),(m,q),(b,g,k),(b,g,g),(b,k)->(m,q)"
    discrete = (4,)

    def values(self, xp, *inputs):
        """Block after block."""
        *given, neighbors = inputs
        function = batches.color if xp is np else _jax_color
        return batches.where_blocks_fit(function, given, neighbors, (), xp)[0]

    def pullback(self, inputs, outputs, cotangents):
        """See `VecchiaColorGrad`."""
        return VecchiaColorGrad()(*inputs, *outputs, *cotangents)


class VecchiaColorGrad(ArrayOp):
    """Cotangents of the rows before, Z, A and L, by the same recursion from the last block on.

    ``Z_bar = L' Y_bar``, ``L_bar = tril(Y_bar Z')``, ``A_bar = Y_bar Y_N'``, ``Y_bar_N += A' Y_bar``.
    """

    gufunc_signature = "(p,q),(m,q),(b,g,k),(b,g,g),(b,k),(m,q),(m,q)->(p,q),(m,q),(b,g,k),(b,g,g)"
    discrete = (4,)

    def values(self, xp, *inputs):
        """Block after block."""
        function = batches.color_grad if xp is np else _jax_color_grad
        return batches.where_blocks_fit(function, inputs[:4], inputs[4], inputs[5:], xp)


def vecchia_color(noise, A, L, neighbors, before=None):
    r"""Columns with the covariance of a block Vecchia approximation, from white ones.

    .. math:: Y_b = A_b Y_N + L_b Z_b

    Parameters
    ----------
    noise : tensor, shape (m, q)
        White columns Z, in the order of the blocks.
    A : tensor, shape (b, g, k)
    L : tensor, shape (b, g, g)
        As :func:`vecchia_factor` gives them.
    neighbors : integer tensor, shape (b, k)
        Rows of ``[before; Y]`` before the block's own, then -1.
    before : tensor, shape (p, q), optional
        Rows that are known already: the blocks come after them.

    Returns
    -------
    tensor, shape (m, q)
        Without `before`, the inverse of :func:`vecchia_whiten`. NaN where neighbours are others, or the
        blocks do not hold all rows.

    See Also
    --------
    vecchia_whiten : Its inverse.

    Notes
    -----
    O(m q (k + g)). Differentiable once in all floating-point arguments.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> K, neighbors = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([[-1], [0]])
    >>> A, L = sgp.ops.vecchia_factor(np.stack([K, K]), np.zeros((2, 0)), np.zeros(2), neighbors)
    >>> Y = sgp.ops.vecchia_color(np.eye(2), A, L, neighbors).eval()
    >>> (Y @ Y.T).round(3)
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    noise = pt.as_tensor(noise)
    if before is None:
        before = pt.zeros((0, noise.type.shape[1] or noise.shape[1]))
    return VecchiaColor()(before, noise, A, L, integers("neighbors", neighbors))


@numba_form(VecchiaColor)
def _color(before, Z, A, L, neighbors):
    (p, q), m = before.shape, Z.shape[0]
    rows = np.zeros((p + m, q))
    rows[:p] = before
    if not blocks_fit(neighbors, m, p, A.shape[1]):
        rows[p:] = np.nan
        return rows[p:]
    for b in range(A.shape[0]):
        start, own = own_rows(m, 0, A.shape[1], b)
        known = count_known(neighbors[b])
        mean, rest = np.zeros((own, q)), np.zeros((own, q))
        near = take_rows(rows, neighbors[b, :known])
        multiply_small(corner(A[b], own, known), near, False, False, mean)
        multiply_small(corner(L[b], own, own), Z[start : start + own], False, False, rest)
        rows[p + start : p + start + own] = mean + rest
    return rows[p:]


@numba_form(VecchiaColorGrad)
def _color_grad(before, Z, A, L, neighbors, Y, Y_bar):
    (p, q), m = before.shape, Z.shape[0]
    rows, total = np.concatenate((before, Y)), np.zeros((p + m, q))
    total[p:] = Y_bar
    Z_bar, A_bar, L_bar = np.zeros((m, q)), np.zeros(A.shape), np.zeros(L.shape)
    if not blocks_fit(neighbors, m, p, A.shape[1]):
        total[:], Z_bar[:], A_bar[:], L_bar[:] = np.nan, np.nan, np.nan, np.nan
        return total[:p], Z_bar, A_bar, L_bar
    for last in range(A.shape[0]):
        b = A.shape[0] - 1 - last
        start, own = own_rows(m, 0, A.shape[1], b)
        known = count_known(neighbors[b])
        bar, white = total[p + start : p + start + own], Z[start : start + own]
        flat, square = np.zeros((own, q)), np.zeros((own, own))
        slope, back = np.zeros((own, known)), np.zeros((known, q))
        multiply_small(corner(L[b], own, own), bar, True, False, flat)
        multiply_small(bar, white, False, True, square)
        multiply_small(bar, take_rows(rows, neighbors[b, :known]), False, True, slope)
        multiply_small(corner(A[b], own, known), bar, True, False, back)
        Z_bar[start : start + own] = flat
        A_bar[b, :own, :known] = slope
        L_bar[b, :own, :own] = np.tril(square)
        for i in range(known):
            total[neighbors[b, i]] += back[i]
    return total[:p], Z_bar, A_bar, L_bar


def _padded(Z, A):
    """White columns by blocks (b, g, q)."""
    count, g = A.shape[:2]
    return jnp.pad(Z, ((0, count * g - len(Z)), (0, 0))).reshape(count, g, Z.shape[1])


def _near(values, neighbors):
    """Rows of the neighbours, zeros where there are none."""
    return jnp.where((neighbors >= 0)[..., None], values[jnp.maximum(neighbors, 0)], 0.0)


def _jax_color(before, Z, A, L, neighbors):
    p, (count, g) = len(before), A.shape[:2]

    def step(rows, block):
        b, a, root, white, near = block
        own = a @ _near(rows, near) + root @ white
        return jax.lax.dynamic_update_slice(rows, own, (p + b * g, 0)), None

    rows = jnp.concatenate([before, jnp.zeros((count * g, Z.shape[1]))])
    blocks = (jnp.arange(count), A, L, _padded(Z, A), neighbors)
    return jax.lax.scan(step, rows, blocks)[0][p : p + len(Z)]


def _jax_color_grad(before, Z, A, L, neighbors, Y, Y_bar):
    p, (count, g), (m, q) = len(before), A.shape[:2], Z.shape

    def step(total, block):
        b, a, root, near = block
        bar = jax.lax.dynamic_slice(total, (p + b * g, 0), (g, q))
        back = jnp.where((near >= 0)[:, None], a.T @ bar, 0.0)
        return total.at[jnp.maximum(near, 0)].add(back), (root.T @ bar, bar)

    padding = jnp.zeros((count * g - m, q))
    total = jnp.concatenate([jnp.zeros_like(before), Y_bar, padding])
    blocks = (jnp.arange(count), A, L, neighbors)
    total, (Z_bar, bars) = jax.lax.scan(step, total, blocks, reverse=True)
    near = _near(jnp.concatenate([before, Y]), neighbors)
    A_bar = bars @ near.transpose(0, 2, 1)
    L_bar = jnp.tril(bars @ _padded(Z, A).transpose(0, 2, 1))
    return total[:p], Z_bar.reshape(-1, q)[:m], A_bar, L_bar
