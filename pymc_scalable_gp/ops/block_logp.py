"""Log densities of features plus block Vecchia, from the blocks of the kernel less the features' part."""

import pytensor.tensor as pt
from pytensor.gradient import disconnected_type

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
        return [*found, -cotangents[0][:, None] * outputs[4], disconnected_type()]


class BlockLogpGrad(BlockOp):
    """Cotangents of the blocks, the features and the noise."""

    has_pullback = False
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
    r"""Log densities of `residuals` under ``N(0, Phi Phi' + S)``, S of block-Vecchia form.

    As :func:`stationary_logp`, of as many residuals as there are, where the `blocks` are known: of the
    several noises of a search, and of the two residuals that a product ``e' (Phi Phi' + S)^-1 z`` takes.

    Parameters
    ----------
    blocks : tensor, shape (b, k + g, k + g)
        ``K - Phi Phi'`` between the local rows of each block, as :func:`stationary_blocks` gives it.
    phi : tensor, shape (n, r)
        Features.
    noise : tensor, shape (n,)
        Variances.
    residuals : tensor, shape (m, n)
    neighbors : integer tensor, shape (b, k)
        As in :func:`vecchia_factor`, with all rows in blocks.
    block : int
        Rows of a block, g.

    Returns
    -------
    tensor, shape (m,)
        Differentiable in all arguments but `neighbors`, in `blocks` as symmetric matrices. A covariance
        that is not positive definite gives NaN.

    Notes
    -----
    O(n/g (k + g)^2 (r + k + g) + n r (r + m)). Where the cotangents of the densities sum to 0, as those of
    a difference do, the gradient takes O(n/g (k + g)^3 + n r m).

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from pymc_scalable_gp.ops.block_logp import block_logp
    >>> from pymc_scalable_gp.ops.stationary_blocks import stationary_blocks
    >>> X, phi, e = np.arange(3.0)[:, None], np.full((3, 1), 0.1), np.array([1.0, 0.5, -0.5])
    >>> neighbors = np.array([[-1, -1], [0, -1], [1, 0]])  # all rows before
    >>> blocks = stationary_blocks("Matern12", X, np.ones(1), 1.0, 1.0, phi, neighbors, 1)
    >>> block_logp(blocks, phi, np.ones(3), np.stack([e, 0 * e]), neighbors, 1).eval().round(4)
    array([-4.1382, -3.5803])
    >>> full = stats.multivariate_normal(cov=np.exp(-abs(X - X.T)) + np.eye(3))
    >>> print(full.logpdf(e).round(4), full.logpdf(0 * e).round(4))
    -4.1382 -3.5803
    """
    inputs = blocks, phi, noise, residuals, neighbors
    return BlockLogp(block)(*map(pt.as_tensor, inputs))[0]


@numba_form(BlockLogp)
def _logp(blocks, phi, noise, residual, neighbors, g):
    return stacked_logp(blocks, phi, noise, residual, neighbors)


@numba_form(BlockLogpGrad)
def _logp_grad(blocks, phi, noise, coef, root, rest, alpha, neighbors, bar, g):
    return stacked_grad(blocks, phi, noise, neighbors, coef, root, rest, alpha, bar, g)
