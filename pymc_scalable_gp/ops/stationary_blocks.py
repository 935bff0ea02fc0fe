"""What features miss of a stationary kernel, between the rows of blocks and their neighbours."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.ops import _vecchia_batches as batches
from pymc_scalable_gp.ops._block_factor import StationaryBlockOp, summed
from pymc_scalable_gp.ops._block_kernel import add_kernel_bars, block_factors, no_bars, sum_of_products
from pymc_scalable_gp.ops._numba import numba_form
from pymc_scalable_gp.ops._small import subtract_gram
from pymc_scalable_gp.ops._vecchia_blocks import (
    add_features_bar,
    add_transpose,
    from_stack,
    take_rows,
    to_stack,
    zero_matrix,
)
from pymc_scalable_gp.ops._vecchia_stream import block_places


class StationaryBlocks(StationaryBlockOp):
    """``K - Phi Phi'`` between local rows (see `stationary_blocks`)."""

    gufunc_signature = "(n,d),(t,d),(q),(t),(w,n),(n,r),(b,k)->(b,s,s)"
    discrete = (6,)

    def values(self, xp, X, scale, variance, shape, rows, phi, neighbors):
        """Many blocks at a time."""

        def kernel_of(places):
            return batches.local_kernel(self.factors(), X, scale, variance, shape, rows, places, xp)

        return batches.residual_blocks(kernel_of, phi, neighbors, self.block, xp)[0]

    def pullback(self, inputs, outputs, cotangents):
        """See `StationaryBlocksGrad`."""
        X_bar, *found = StationaryBlocksGrad(self.summands, self.block, self.moving)(*inputs, *cotangents)
        return [X_bar, *found] if self.moving else found


class StationaryBlocksGrad(StationaryBlockOp):
    """Cotangents of inputs, inverse lengthscales, variance, alpha, rows' factors and features."""

    gufunc_signature = "(n,d),(t,d),(q),(t),(w,n),(n,r),(b,k),(b,s,s)->(z,d),(t,d),(q),(t),(w,n),(n,r)"
    discrete = (6,)

    def values(self, xp, X, scale, variance, shape, rows, phi, neighbors, bar):
        """Many blocks at a time."""
        kernel_bar = self.kernel_bar(xp, X, scale, variance, shape, rows)
        bar = 0.5 * (bar + bar.swapaxes(1, 2))
        parts, phi_bar, _ = batches.residual_grad(
            lambda part: bar[part], kernel_bar, phi, neighbors, 0, self.block, xp
        )
        return *map(sum, zip(*parts, strict=True)), phi_bar


def stationary_blocks(kind, X, scale, variance, shape, phi, neighbors, block, moving=False, rows=None):
    """``K - Phi Phi'`` (b, k + g, k + g) between the local rows of each block: k neighbours, then its own.

    With the arguments of `stationary_factor`. Zeros for rows that are not there.
    """
    summands, *parameters = summed(kind, X, scale, variance, shape, rows)
    inputs = (X, *parameters, phi, neighbors)
    return StationaryBlocks(summands, block, moving)(*map(pt.as_tensor, inputs))


@numba_form(StationaryBlocks)
def _blocks(X, scale, variance, shape, rows, phi, neighbors, terms, g, moving):
    count, k = neighbors.shape
    out = zero_matrix(count, (k + g) ** 2).reshape((count, k + g, k + g))
    for b in range(count):
        places, known = block_places(neighbors, b, len(X), g)
        values = block_factors(X, scale, shape, rows, terms, places)[2]
        M = sum_of_products(values, variance, terms)
        if phi.shape[1] > 0:
            subtract_gram(take_rows(phi, places), M)
        to_stack(M, known, g, out[b])
    return out


@numba_form(StationaryBlocksGrad)
def _blocks_grad(X, scale, variance, shape, rows, phi, neighbors, bar, terms, g, moving):
    bars, phi_bar = no_bars(scale, variance, shape, rows), zero_matrix(phi.shape[0], phi.shape[1])
    X_bar = np.zeros((len(X) * moving, X.shape[1]))
    for b in range(len(neighbors)):
        places, known = block_places(neighbors, b, len(X), g)
        M_bar = from_stack(bar[b], known, len(places), g)
        add_transpose(M_bar)
        M_bar *= 0.5
        factors = block_factors(X, scale, shape, rows, terms, places)
        add_kernel_bars(factors, M_bar, scale, variance, shape, rows, terms, places, bars, X_bar)
        add_features_bar(M_bar, take_rows(phi, places), places, phi_bar)
    return X_bar, bars[0], bars[1], bars[2], bars[3], phi_bar
