"""Regressions of blocks of rows on their neighbours under a stationary kernel, block after block."""

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops import _vecchia_batches as batches
from pymc_scalable_gp.ops._block_factor import BlockFactor, BlockOp
from pymc_scalable_gp.ops._jax import jax, jnp, register_jax
from pymc_scalable_gp.ops._numba import inlined, register_numba
from pymc_scalable_gp.ops._stationary import (
    KINDS,
    add_kernel_bars,
    fill_squares,
    kernel_of_squares,
    kernel_values,
    local_inputs,
)
from pymc_scalable_gp.ops._vecchia_blocks import (
    add_local,
    count_known,
    factor_block,
    factor_block_grad,
    local_places,
    subtract_features,
    take_rows,
)
from pymc_scalable_gp.ops.vecchia_factor import (
    jax_factor,
    jax_factor_grad,
    jax_local,
    own_rows,
)


class StationaryFactor(BlockFactor):
    """As `VecchiaFactor`, with the kernel's blocks computed on the way (see `stationary_factor`)."""

    __props__ = ("kind", "block")
    gufunc_signature = "(n,d),(d),(),(),(n,r),(n),(b,k),()->(b,g,k),(b,g,g),(b,k,k)"
    discrete = (6, 7)

    def __init__(self, kind, block):
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
        super().__init__(block)
        self.kind = kind

    def values(self, X, scale, variance, shape, *rest):
        """See `_vecchia_batches.factor`."""

        def blocks_of(part, places):
            total = np.zeros((*places.shape, places.shape[1]))
            for squares in batches.local_squares(X, scale, places):
                total += squares
            return variance * kernel_of_squares(self.kind, total, shape, np)

        return batches.factor(blocks_of, *rest, self.block)

    def backward(self, inputs, made):
        """See `StationaryFactorGrad`; the inputs X are data."""
        found = StationaryFactorGrad(self.kind, self.block)(*inputs, *made)
        return [disconnected_type(), *found, disconnected_type(), disconnected_type()]

    def connection_pattern(self, node):
        return [[i not in (0, 6, 7)] * 3 for i in range(8)]


class StationaryFactorGrad(BlockOp):
    """Cotangents of the inverse lengthscales, variance, alpha, features and noise."""

    __props__ = ("kind", "block")
    gufunc_signature = (
        "(n,d),(d),(),(),(n,r),(n),(b,k),(),(b,g,k),(b,g,g),(b,k,k),(b,g,k),(b,g,g)"
        "->(d),(),(),(n,r),(n)"
    )
    discrete = (6, 7)

    def __init__(self, kind, block):
        super().__init__(block)
        self.kind = kind

    def values(self, X, scale, variance, shape, *rest):
        """See `_vecchia_batches.factor_grad`."""
        bars, d = np.zeros(len(scale) + 2), len(scale)
        parts, *rest = batches.factor_grad(*rest)
        for _, places, M_bar in parts:
            batches.add_kernel_bars(bars, self.kind, X, scale, variance, shape, places, M_bar)
        return bars[:d], np.asarray(bars[d]), np.asarray(bars[d + 1]), *rest


def stationary_factor(kind, X, scale, variance, shape, phi, noise, neighbors, first, block):
    r"""As :func:`vecchia_factor`, for ``variance * f(sum_a scale_a^2 (x_a - z_a)^2)``.

    Parameters
    ----------
    kind : {"ExpQuad", "Matern12", "Exponential", "Matern32", "Matern52", "RatQuad"}
    X : tensor, shape (n, d)
        Inputs, as data: they get no gradient.
    scale : tensor, shape (d,)
        Inverse lengthscales.
    variance, shape : scalar tensors
        Prior variance; alpha of a RatQuad, unused by the others.
    phi, noise, neighbors, first
        As in :func:`vecchia_factor`.
    block : int
        Rows of a block, g.

    Returns
    -------
    A, L : tensors, shapes (b, g, k) and (b, g, g)

    Notes
    -----
    The kernel's blocks are formed one at a time: besides the results, the workspace is one block's.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> X, none = np.arange(3.0)[:, None], np.zeros((3, 0))
    >>> neighbors = np.array([[-1], [0], [1]])  # the row before, which is enough for this kernel
    >>> A, L = sgp.ops.stationary_factor(
    ...     "Matern12", X, np.ones(1), 1.0, 1.0, none, np.zeros(3), neighbors, 0, 1
    ... )
    >>> A.eval().ravel().round(3), L.eval().ravel().round(3)
    (array([0.   , 0.368, 0.368]), array([1.  , 0.93, 0.93]))
    >>> print(np.exp(-1.0).round(3), np.sqrt(1.0 - np.exp(-2.0)).round(3))
    0.368 0.93
    """
    inputs = (X, scale, variance, shape, phi, noise, neighbors, first)
    A, L, _ = StationaryFactor(kind, block)(*(pt.as_tensor(x) for x in inputs))
    return A, L


@inlined
def _factor(X, scale, variance, shape, phi, noise, neighbors, first, kind, g):
    count, k = neighbors.shape
    A, L, F = np.empty((count, g, k)), np.empty((count, g, g)), np.empty((count, k, k))
    for b in range(count):
        start, own = own_rows(phi.shape[0], first, g, b)
        known = count_known(neighbors[b])
        places = local_places(neighbors[b], known, start, own)
        s = known + own
        squares, M, slopes = np.zeros((s, s)), np.zeros((s, s)), np.zeros((s, s))
        fill_squares(local_inputs(X, scale, places), squares)
        kernel_values(squares, kind, shape, M, slopes)
        for i in range(s):
            for j in range(i + 1):
                M[i, j] *= variance
            M[i, i] += noise[places[i]]
        subtract_features(M, take_rows(phi, places))
        factor_block(M, known, A[b], L[b], F[b])
    return A, L, F


@inlined
def _factor_grad(
    X, scale, variance, shape, phi, noise, neighbors, first, A, L, F, A_bar, L_bar, kind, g
):
    bars = np.zeros(len(scale) + 2)
    phi_bar, noise_bar = np.zeros(phi.shape), np.zeros(noise.shape)
    for b in range(neighbors.shape[0]):
        start, own = own_rows(phi.shape[0], first, g, b)
        known = count_known(neighbors[b])
        places = local_places(neighbors[b], known, start, own)
        s = known + own
        squares, values, slopes = np.zeros((s, s)), np.zeros((s, s)), np.zeros((s, s))
        inputs = local_inputs(X, scale, places)
        fill_squares(inputs, squares)
        kernel_values(squares, kind, shape, values, slopes)
        M_bar = factor_block_grad(A[b], L[b], F[b], A_bar[b], L_bar[b], known, own)
        add_kernel_bars(inputs, squares, kind, shape, values, slopes, M_bar, scale, variance, bars)
        add_local(M_bar, take_rows(phi, places), places, phi_bar, noise_bar)
    return bars, phi_bar, noise_bar


@register_numba(StationaryFactor)
def numba_stationary_factor(op):
    kind, g = KINDS.index(op.kind), op.block

    @nb.numba_njit
    def stationary_factor(X, scale, variance, shape, phi, noise, neighbors, first):
        return _factor(
            X,
            scale,
            variance.item(),
            shape.item(),
            phi,
            noise,
            neighbors,
            first.item(),
            kind,
            g,
        )

    return stationary_factor


@register_numba(StationaryFactorGrad)
def numba_stationary_factor_grad(op):
    kind, g = KINDS.index(op.kind), op.block

    @nb.numba_njit
    def stationary_factor_grad(
        X, scale, variance, shape, phi, noise, neighbors, first, A, L, F, A_bar, L_bar
    ):
        bars, phi_bar, noise_bar = _factor_grad(
            X, scale, variance.item(), shape.item(), phi, noise, neighbors,
            first.item(), A, L, F, A_bar, L_bar, kind, g,
        )  # fmt: skip
        d = len(bars) - 2
        return bars[:d].copy(), np.asarray(bars[d]), np.asarray(bars[d + 1]), phi_bar, noise_bar

    return stationary_factor_grad


def _jax_blocks(kind, X, places, scale, variance, shape):
    """Kernel (b, s, s) between local rows."""

    def add(total, column):
        x, factor = column
        near = (x[places] - x[places[:, :1]]) * factor
        return total + (near[:, :, None] - near[:, None]) ** 2, None

    squares = jnp.zeros((*places.shape, places.shape[1]))
    squares = jax.lax.scan(add, squares, (X.T, scale))[0]
    return variance * kernel_of_squares(kind, squares, shape, jnp)


@register_jax(StationaryFactor)
def jax_stationary_factor(op):
    def forward(X, scale, variance, shape, phi, noise, neighbors, first):
        places, _ = jax_local(neighbors, first, phi.shape[0], op.block)
        blocks = _jax_blocks(op.kind, X, places, scale, variance, shape)
        return jax_factor(blocks, phi, noise, neighbors, first, op.block)

    return forward


@register_jax(StationaryFactorGrad, differentiable=False)
def jax_stationary_factor_grad(op):
    def forward(X, scale, variance, shape, phi, noise, neighbors, first, A, L, F, A_bar, L_bar):
        places, there = jax_local(neighbors, first, phi.shape[0], op.block)
        M_bar = jax_factor_grad(A, L, F, A_bar, L_bar)
        M_bar = jnp.where(there[:, :, None] & there[:, None, :], M_bar, 0.0)
        _, back = jax.vjp(
            lambda *values: _jax_blocks(op.kind, X, places, *values), scale, variance, shape
        )
        phi_bar = jnp.zeros_like(phi).at[places].add(-2.0 * M_bar @ phi[places])
        diagonal = jnp.diagonal(M_bar, axis1=1, axis2=2)
        return *back(M_bar), phi_bar, jnp.zeros_like(noise).at[places].add(diagonal)

    return forward
