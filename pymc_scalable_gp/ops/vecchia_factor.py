"""Regressions of blocks of rows on their neighbours, from the blocks of a kernel matrix."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.ops import _vecchia_batches as batches
from pymc_scalable_gp.ops._base import integers
from pymc_scalable_gp.ops._block_factor import BlockFactor, BlockOp
from pymc_scalable_gp.ops._numba import numba_form
from pymc_scalable_gp.ops._vecchia_blocks import factor_blocks, factor_blocks_grad


class VecchiaFactor(BlockFactor):
    """From the blocks of a kernel matrix (see `vecchia_factor`)."""

    gufunc_signature = "(b,s,s),(n,r),(n),(b,k),()->(b,g,k),(b,g,g),(b,k,k)"
    discrete = (3, 4)

    def values(self, xp, kernel, *rest):
        """See `_vecchia_batches.factor`."""
        return batches.factor(lambda part, places: kernel[part], *rest, self.block, xp)

    def backward(self, inputs, made):
        """See `VecchiaFactorGrad`."""
        return VecchiaFactorGrad(self.block)(*inputs[1:], *made)


class VecchiaFactorGrad(BlockOp):
    """Cotangents of the kernel's blocks, of the features and of the noise."""

    gufunc_signature = "(n,r),(n),(b,k),(),(b,g,k),(b,g,g),(b,k,k),(b,g,k),(b,g,g)->(b,s,s),(n,r),(n)"
    discrete = (2, 3)

    def values(self, xp, *inputs):
        """See `_vecchia_batches.factor_grad`."""
        bars, *rest = batches.factor_grad(lambda places, M_bar: [M_bar], *inputs, xp)
        return *batches.joined(bars, xp), *rest


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
    O((k + g)^2 (r + k + g)) per block. A covariance that is not positive definite gives NaN for its block,
    as neighbours do that are no rows before it.
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
    blocks, neighbors = pt.as_tensor(blocks), integers("neighbors", neighbors)
    local, known = blocks.type.shape[1], neighbors.type.shape[1]
    if local is None or known is None:
        raise TypeError("vecchia_factor needs blocks and neighbors of static numbers of columns")
    A, L, _ = VecchiaFactor(local - known)(blocks, phi, noise, neighbors, integers("first", first))
    return A, L


@numba_form(VecchiaFactor)
def _factor(blocks, phi, noise, neighbors, first, g):
    none, zeros, terms = np.zeros((0, 0)), np.zeros(0), np.zeros((0, 2), dtype=np.int64)
    return factor_blocks(
        blocks, none, none, zeros, zeros, none, phi, noise, neighbors, first.item(), terms, g
    )


@numba_form(VecchiaFactorGrad)
def _factor_grad(phi, noise, neighbors, first, A, L, F, A_bar, L_bar, g):
    s = neighbors.shape[1] + g
    blocks_bar = np.zeros((neighbors.shape[0], s, s))
    none, zeros, terms = np.zeros((0, 0)), np.zeros(0), np.zeros((0, 2), dtype=np.int64)
    _, phi_bar, noise_bar = factor_blocks_grad(
        blocks_bar, none, none, zeros, zeros, none, phi, noise, neighbors, first.item(),
        A, L, F, A_bar, L_bar, terms, g, none,
    )  # fmt: skip
    return blocks_bar, phi_bar, noise_bar
