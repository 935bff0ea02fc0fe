"""Inverse Cholesky factors of stacked small matrices, with a jitter relative to the trace."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._jax import jax, jax_form, jnp
from pymc_scalable_gp.ops._kernels import invert_lower
from pymc_scalable_gp.ops._numba import one_source
from pymc_scalable_gp.ops.stacked_cholesky import factor, half_lower
from pymc_scalable_gp.ops.stacked_product import stacked_product
from pymc_scalable_gp.utils.jitter import GRAM_JITTER


class InverseCholesky(GufuncOp):
    """``L_i^{-1}`` with ``L_i L_i' = A_i + jitter tr(A_i) I`` (see `inverse_cholesky`)."""

    __props__ = ("jitter",)
    gufunc_signature = "(d,m,m)->(d,m,m)"

    def __init__(self, jitter):
        self.jitter = float(jitter)

    def pullback(self, inputs, outputs, cotangents):
        r"""``dA = sym(H) + jitter tr(H) I`` with ``H = -W' P W`` and ``P = tril(dW W')``.

        From ``dL = L tril(W dA W')`` (Giles 2008) and ``dW = -W dL W``; tril halves the diagonal.
        """
        (W,), (g,) = outputs, cotangents
        P = stacked_product(g, W, transpose_b=True) * half_lower(W.shape[1])
        H = -stacked_product(stacked_product(W, P, transpose_a=True), W)
        trace = pt.sum(H * pt.eye(W.shape[1]), axis=(1, 2))
        H_bar = 0.5 * (H + H.transpose(0, 2, 1))
        return [H_bar + self.jitter * trace[:, None, None] * pt.eye(W.shape[1])]


def inverse_cholesky(matrices, jitter: float = GRAM_JITTER):
    r"""Inverse Cholesky factors of symmetric positive semidefinite matrices.

    .. math:: W_i = L_i^{-1}, \qquad L_i L_i^\top = A_i + \epsilon\,\mathrm{tr}(A_i)\, I

    Parameters
    ----------
    matrices : tensor, shape (d, m, m)
        Symmetric; O(d m^3) time.
    jitter : float
        Epsilon: the result is a smooth function of the matrices, whatever their rank.

    Returns
    -------
    tensor, shape (d, m, m)
        Lower triangular. NaN for a matrix that is not finite or not positive semidefinite.

    References
    ----------
    .. [1] Giles, M. (2008). Collected matrix derivative results for forward and reverse mode
       algorithmic differentiation. https://doi.org/10.1007/978-3-540-68942-3_4

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A = np.array([[4.0, 2.0], [2.0, 5.0]])
    >>> W = sgp.ops.inverse_cholesky(A[None]).eval()[0]
    >>> W.round(3)
    array([[ 0.5 ,  0.  ],
           [-0.25,  0.5 ]])
    >>> np.allclose(W @ np.linalg.cholesky(A), np.eye(2))
    True
    """
    return InverseCholesky(jitter)(matrices)


@one_source(InverseCholesky)
def factor_inverses(matrices, jitter):
    out = np.empty(matrices.shape)
    for i in range(len(matrices)):
        extra = jitter * np.trace(matrices[i])
        if not (factor(matrices[i], extra, out[i]) and invert_lower(out[i])):
            out[i] = np.nan
    return out


@jax_form(InverseCholesky)
def _jax_factor_inverses(matrices, jitter):
    eye = jnp.broadcast_to(jnp.eye(matrices.shape[1]), matrices.shape)
    extra = jitter * jnp.trace(matrices, axis1=1, axis2=2)
    lower = jnp.linalg.cholesky(matrices + extra[:, None, None] * eye)
    return jax.scipy.linalg.solve_triangular(lower, eye, lower=True)
