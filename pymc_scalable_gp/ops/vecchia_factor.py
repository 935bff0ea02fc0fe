"""Regressions of blocks of rows on their neighbours, from the blocks of a kernel matrix."""

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable
from pytensor.gradient import disconnected_type
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops import _vecchia_batches as batches
from pymc_scalable_gp.ops._block_factor import BlockFactor, BlockOp
from pymc_scalable_gp.ops._jax import jax, jnp, register_jax
from pymc_scalable_gp.ops._numba import inlined, register_numba
from pymc_scalable_gp.ops._vecchia_blocks import (
    add_local,
    count_known,
    factor_block,
    factor_block_grad,
    local_places,
    subtract_features,
    take_rows,
)


class VecchiaFactor(BlockFactor):
    """From the blocks of a kernel matrix (see `vecchia_factor`)."""

    gufunc_signature = "(b,s,s),(n,r),(n),(b,k),()->(b,g,k),(b,g,g),(b,k,k)"
    discrete = (3, 4)

    def values(self, kernel, *rest):
        """See `_vecchia_batches.factor`."""
        return batches.factor(lambda part, places: kernel[part], *rest, self.block)

    def backward(self, inputs, made):
        """See `VecchiaFactorGrad`."""
        found = VecchiaFactorGrad(self.block)(*inputs[1:], *made)
        return [*found, disconnected_type(), disconnected_type()]


class VecchiaFactorGrad(BlockOp):
    """Cotangents of the kernel's blocks, of the features and of the noise."""

    gufunc_signature = (
        "(n,r),(n),(b,k),(),(b,g,k),(b,g,g),(b,k,k),(b,g,k),(b,g,g)->(b,s,s),(n,r),(n)"
    )
    discrete = (2, 3)

    def _static(self, inputs, needed):
        known = super()._static(inputs, needed)
        if "k" in known:
            known["s"] = known["k"] + self.block
        return known

    def infer_shape(self, node, input_shapes):
        """Local rows are the neighbours and the block."""
        (n, r), _, (b, k) = input_shapes[:3]
        return [(b, k + self.block, k + self.block), (n, r), (n,)]

    def values(self, *inputs):
        """See `_vecchia_batches.factor_grad`."""
        bars, phi_bar, noise_bar = batches.factor_grad(*inputs)
        count, local = len(inputs[2]), inputs[2].shape[1] + self.block
        blocks_bar = np.zeros((count, local, local))
        for part, _, M_bar in bars:
            blocks_bar[part] = M_bar
        return blocks_bar, phi_bar, noise_bar


def vecchia_factor(blocks, phi, noise, neighbors, first=0):
    r"""Regression of each block of rows on its neighbours, under the covariance ``K - Phi Phi' + D``.

    .. math:: A_b = M_{bN} M_{NN}^{-1}, \qquad L_b L_b^\top = M_{bb} - A_b M_{Nb}, \qquad
              M = (K - \Phi\Phi^\top + D)[N \cup b]

    Parameters
    ----------
    blocks : tensor, shape (b, k + g, k + g)
        Kernel between the local rows of each block: its k neighbours, then its own g rows; symmetric.
        Entries of rows that are not there may hold any number.
    phi : tensor, shape (n, r)
        Features; what they hold of the kernel is taken off.
    noise : tensor, shape (n,)
        Variances D that are added to the diagonal.
    neighbors : integer tensor, shape (b, k)
        Rows that each block is conditioned on, which must come before it; -1 after the last of them.
    first : int
        Block j has the rows ``first + j g`` up to ``first + (j + 1) g``, as far as there are any.

    Returns
    -------
    A : tensor, shape (b, g, k)
        Zero beyond the known neighbours and rows.
    L : tensor, shape (b, g, g)
        Lower triangular, with ones on the diagonal for rows that are not there.

    See Also
    --------
    stationary_factor : For stationary kernels, with less memory.

    Notes
    -----
    O((k + g)^2 (r + k + g)) per block. A covariance that is not positive definite gives NaN for its block.
    Differentiable once in `blocks` (as a symmetric matrix), `phi` and `noise`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> K, none = np.array([[1.0, 0.5], [0.5, 1.0]]), np.zeros((2, 0))
    >>> neighbors = np.array([[-1], [0]])  # the second row is given the first
    >>> A, L = sgp.ops.vecchia_factor(np.stack([K, K]), none, np.zeros(2), neighbors)
    >>> A.eval().ravel().round(3), L.eval().ravel().round(3)
    (array([0. , 0.5]), array([1.   , 0.866]))
    """
    blocks, neighbors = pt.as_tensor(blocks), pt.as_tensor(neighbors)
    local, known = blocks.type.shape[1], neighbors.type.shape[1]
    if local is None or known is None:
        raise TypeError("vecchia_factor needs blocks and neighbors of static numbers of columns")
    A, L, _ = VecchiaFactor(local - known)(blocks, phi, noise, neighbors, first)
    return A, L


@register_jitable
def own_rows(n, first, block, b):
    """First row of block b, and how many rows it has."""
    start = first + b * block
    return start, max(min(block, n - start), 0)


@inlined
def factor(blocks, phi, noise, neighbors, first, g):
    count, k = neighbors.shape
    A, L, F = np.empty((count, g, k)), np.empty((count, g, g)), np.empty((count, k, k))
    for b in range(count):
        start, own = own_rows(phi.shape[0], first, g, b)
        known = count_known(neighbors[b])
        places = local_places(neighbors[b], known, start, own)
        M = np.zeros((known + own, known + own))
        for i in range(known + own):
            row = i if i < known else k + i - known
            for j in range(i + 1):
                column = j if j < known else k + j - known
                M[i, j] = blocks[b, row, column]
            M[i, i] += noise[places[i]]
        subtract_features(M, take_rows(phi, places))
        factor_block(M, known, A[b], L[b], F[b])
    return A, L, F


@inlined
def factor_grad(phi, noise, neighbors, first, A, L, F, A_bar, L_bar, g):
    count, k = neighbors.shape
    s = k + g
    blocks_bar = np.zeros((count, s, s))
    phi_bar, noise_bar = np.zeros(phi.shape), np.zeros(noise.shape)
    for b in range(count):
        start, own = own_rows(phi.shape[0], first, g, b)
        known = count_known(neighbors[b])
        places = local_places(neighbors[b], known, start, own)
        M_bar = factor_block_grad(A[b], L[b], F[b], A_bar[b], L_bar[b], known, own)
        add_local(M_bar, take_rows(phi, places), places, phi_bar, noise_bar)
        for i in range(known + own):
            row = i if i < known else k + i - known
            for j in range(known + own):
                column = j if j < known else k + j - known
                blocks_bar[b, row, column] = M_bar[i, j]
    return blocks_bar, phi_bar, noise_bar


@register_numba(VecchiaFactor)
def numba_vecchia_factor(op):
    g = op.block

    @nb.numba_njit
    def vecchia_factor(blocks, phi, noise, neighbors, first):
        return factor(blocks, phi, noise, neighbors, first.item(), g)

    return vecchia_factor


@register_numba(VecchiaFactorGrad)
def numba_vecchia_factor_grad(op):
    g = op.block

    @nb.numba_njit
    def vecchia_factor_grad(phi, noise, neighbors, first, A, L, F, A_bar, L_bar):
        return factor_grad(phi, noise, neighbors, first.item(), A, L, F, A_bar, L_bar, g)

    return vecchia_factor_grad


def jax_local(neighbors, first, n, g):
    """Local rows (b, s) of the blocks, and which of them are there."""
    count = neighbors.shape[0]
    own = first + jnp.arange(count)[:, None] * g + jnp.arange(g)
    places = jnp.concatenate([neighbors, jnp.where(own < n, own, -1)], axis=1)
    return jnp.maximum(places, 0), places >= 0


def jax_factor(blocks, phi, noise, neighbors, first, g):
    """Batched Cholesky factors; rows that are not there become independent ones."""
    k = neighbors.shape[1]
    places, there = jax_local(neighbors, first, phi.shape[0], g)
    local = phi[places]
    M = blocks - local @ local.transpose(0, 2, 1)
    eye = jnp.eye(k + g)
    M = jnp.where(there[:, :, None] & there[:, None, :], M + noise[places][:, :, None] * eye, eye)
    root = jnp.linalg.cholesky(M)
    F, cross, L = root[:, :k, :k], root[:, k:, :k], root[:, k:, k:]
    A = jax.lax.linalg.triangular_solve(F, cross, lower=True, left_side=False) if k else cross
    failed = jnp.isnan(root).any(axis=(1, 2))[:, None, None]
    return tuple(jnp.where(failed, jnp.nan, value) for value in (A, L, F))


def jax_factor_grad(A, L, F, A_bar, L_bar):
    """Symmetric cotangents (b, s, s) of M."""
    solve, k = jax.lax.linalg.triangular_solve, A.shape[2]
    P = jnp.tril(L.transpose(0, 2, 1) @ L_bar) * (1.0 - 0.5 * jnp.eye(L.shape[1]))
    P = solve(L, P, lower=True, left_side=True, transpose_a=True)
    P = solve(L, P, lower=True, left_side=False)
    half = 0.25 * (P + P.transpose(0, 2, 1))
    G = A_bar
    if k:
        G = solve(F, G, lower=True, left_side=False, transpose_a=True)
        G = solve(F, G, lower=True, left_side=False)
    Z = jnp.concatenate([0.5 * G - half @ A, half], axis=2)
    Ut = jnp.concatenate([-A, jnp.broadcast_to(jnp.eye(L.shape[1]), L.shape)], axis=2)
    M_bar = Ut.transpose(0, 2, 1) @ Z
    return M_bar + M_bar.transpose(0, 2, 1)


@register_jax(VecchiaFactor)
def jax_vecchia_factor(op):
    def forward(blocks, phi, noise, neighbors, first):
        return jax_factor(blocks, phi, noise, neighbors, first, op.block)

    return forward


@register_jax(VecchiaFactorGrad, differentiable=False)
def jax_vecchia_factor_grad(op):
    def forward(phi, noise, neighbors, first, A, L, F, A_bar, L_bar):
        places, there = jax_local(neighbors, first, phi.shape[0], op.block)
        M_bar = jax_factor_grad(A, L, F, A_bar, L_bar)
        M_bar = jnp.where(there[:, :, None] & there[:, None, :], M_bar, 0.0)
        phi_bar = jnp.zeros_like(phi).at[places].add(-2.0 * M_bar @ phi[places])
        diagonal = jnp.diagonal(M_bar, axis1=1, axis2=2)
        return M_bar, phi_bar, jnp.zeros_like(noise).at[places].add(diagonal)

    return forward
