"""Regressions of blocks of rows on their neighbours under a stationary kernel, block after block."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.ops._base import integers
from pymc_scalable_gp.ops._block_factor import BlockFactor, StationaryBlockOp, summed
from pymc_scalable_gp.ops._numba import numba_form
from pymc_scalable_gp.ops._vecchia_blocks import factor_blocks, factor_blocks_grad


class StationaryFactor(StationaryBlockOp, BlockFactor):
    """As `VecchiaFactor`, with the kernel's blocks computed on the way (see `stationary_factor`)."""

    gufunc_signature = "(n,d),(t,d),(q),(t),(w,n),(n,r),(n),(b,k),()->(b,g,k),(b,g,g),(b,k,k)"
    discrete = (7, 8)
    values = StationaryBlockOp.factor

    def backward(self, inputs, made):
        """See `StationaryFactorGrad`."""
        X_bar, *found = StationaryFactorGrad(self.summands, self.block, self.moving)(*inputs, *made)
        return [X_bar, *found] if self.moving else found


class StationaryFactorGrad(StationaryBlockOp):
    """Cotangents of inputs, inverse lengthscales, variance, alpha, rows' factors, features and noise."""

    gufunc_signature = (
        "(n,d),(t,d),(q),(t),(w,n),(n,r),(n),(b,k),(),(b,g,k),(b,g,g),(b,k,k),(b,g,k),(b,g,g)"
        "->(z,d),(t,d),(q),(t),(w,n),(n,r),(n)"
    )
    discrete = (7, 8)
    values = StationaryBlockOp.factor_grad


def stationary_factor(
    kind, X, scale, variance, shape, phi, noise, neighbors, first, block, moving=False, rows=None
):
    r"""As :func:`vecchia_factor`, for sums of products of stationary kernels of unit variance.

    .. math:: k(x, z) = \sum_q v_q \prod_{t \in q} f_t\Bigl(\sum_a s_{ta}^2 (x_a - z_a)^2\Bigr)

    Parameters
    ----------
    kind : {"ExpQuad", "Matern12", "Exponential", "Matern32", "Matern52", "RatQuad", "Arc"}
        One kernel; or a tuple with a tuple of kinds for each summand q, t factors in all.
    X : tensor, shape (n, d)
        Inputs, as data: they get no gradient, unless they are `moving`.
    scale : tensor, shape (d,) or (t, d)
        Inverse lengthscales; 0 for inputs that a factor is no function of.
    variance : tensor, scalar or of shape (q,)
        Prior variances.
    shape : tensor, scalar or of shape (t,)
        Alpha of a RatQuad, or of an Arc: ``exp(-alpha angle)``, of points on the unit sphere; unused by
        the others.
    phi, noise, neighbors, first
        As in :func:`vecchia_factor`.
    block : int
        Rows of a block, g.
    moving : bool
        Differentiate in the inputs too.
    rows : tensor, shape (t, n), optional
        Factors s of the rows: ``s_t(x) s_t(z) f_t``.

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
    summands, *parameters = summed(kind, X, scale, variance, shape, rows)
    neighbors, first = integers("neighbors", neighbors), integers("first", first)
    inputs = (X, *parameters, phi, noise, neighbors, first)
    A, L, _ = StationaryFactor(summands, block, moving)(*(pt.as_tensor(x) for x in inputs))
    return A, L


@numba_form(StationaryFactor)
def _factor(X, scale, variance, shape, rows, phi, noise, neighbors, first, terms, g, moving):
    blocks = np.zeros((0, 0, 0))
    return factor_blocks(
        blocks, X, scale, variance, shape, rows, phi, noise, neighbors, first.item(), terms, g
    )


@numba_form(StationaryFactorGrad)
def _factor_grad(
    X, scale, variance, shape, rows, phi, noise, neighbors, first, A, L, F, A_bar, L_bar, terms, g, moving
):
    X_bar = np.zeros((len(X) * moving, X.shape[1]))
    bars, phi_bar, noise_bar = factor_blocks_grad(
        np.zeros((0, 0, 0)), X, scale, variance, shape, rows, phi, noise, neighbors, first.item(),
        A, L, F, A_bar, L_bar, terms, g, X_bar,
    )  # fmt: skip
    return X_bar, bars[0], bars[1], bars[2], bars[3], phi_bar, noise_bar
