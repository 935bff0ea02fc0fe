"""Log densities of features plus block Vecchia, from the blocks of the kernel less the features' part."""

import pytensor.tensor as pt

from pymc_scalable_gp.ops import _vecchia_batches as batches
from pymc_scalable_gp.ops._block_factor import BlockOp
from pymc_scalable_gp.ops._numba import numba_form
from pymc_scalable_gp.ops._vecchia_stream import stacked_grad, stacked_logp


class BlockLogp(BlockOp):
    """Log densities, coefficients, their root, residuals less what they explain, and their slopes.

    See `block_logp`; the slopes are ``(Phi Phi' + S)^-1 e``, of opposite sign. Only the first can be
    differentiated.
    """

    gufunc_signature = "(b,s,s),(n,r),(n),(m,n),(b,k)->(m),(m,r),(r,r),(m,n),(m,n)"
    discrete = (4,)
    differentiable_outputs = (0,)

    def values(self, xp, blocks, phi, noise, residual, neighbors):
        """By all regressions at once, and `lowrank_logp` of whitened columns."""
        A, L, _ = _factor(xp, blocks, phi, noise, neighbors, self.block)
        return batches.density(A, L, phi, residual, neighbors, xp)

    def pullback(self, inputs, outputs, cotangents):
        """See `BlockLogpGrad`; the residuals' slopes are known."""
        blocks, phi, noise, _, neighbors = inputs
        found = BlockLogpGrad(self.block)(blocks, phi, noise, *outputs[1:], neighbors, cotangents[0])
        return [*found, -cotangents[0][:, None] * outputs[4]]


class BlockLogpGrad(BlockOp):
    """Cotangents of the blocks, the features and the noise."""

    gufunc_signature = "(b,s,s),(n,r),(n),(m,r),(r,r),(m,n),(m,n),(b,k),(m)->(b,s,s),(n,r),(n)"
    discrete = (7,)

    def values(self, xp, blocks, phi, noise, coef, root, rest, alpha, neighbors, bar):
        """By the cotangents of whitened columns."""
        A, L, F = _factor(xp, blocks, phi, noise, neighbors, self.block)
        back, *bars = batches.density_grad(A, L, phi, coef, root, rest, neighbors, bar, xp)
        made, _, noise_bar = batches.factor_grad(
            lambda places, M_bar: [M_bar], phi[:, :0], noise, neighbors, 0, A, L, F, *bars, xp
        )
        return *batches.joined(made, xp), back, noise_bar


def _factor(xp, blocks, phi, noise, neighbors, g):
    """Regressions of all blocks, which hold nothing of the features."""
    return batches.factor(lambda part, places: blocks[part], phi[:, :0], noise, neighbors, 0, g, xp)


def block_logp(blocks, phi, noise, residuals, neighbors, block):
    """Log densities (m,) of `residuals` (m, n) under ``N(0, Phi Phi' + S)``, S of block-Vecchia form.

    As `stationary_logp`, of `blocks` that are known, as `stationary_blocks` gives them: of the several
    noises of a search, and of the two residuals that a product ``e' (Phi Phi' + S)^-1 z`` takes. Where the
    cotangents sum to 0, as a difference's do, the gradient takes O(n/g (k + g)^3 + n r m).
    """
    inputs = blocks, phi, noise, residuals, neighbors
    return BlockLogp(block)(*map(pt.as_tensor, inputs))[0]


@numba_form(BlockLogp)
def _logp(blocks, phi, noise, residual, neighbors, g):
    return stacked_logp(blocks, phi, noise, residual, neighbors)


@numba_form(BlockLogpGrad)
def _logp_grad(blocks, phi, noise, coef, root, rest, alpha, neighbors, bar, g):
    return stacked_grad(blocks, phi, noise, neighbors, coef, root, rest, alpha, bar, g)
