"""Cholesky factors of stacked matrices, ``L_i L_i' = A_i``, and their inverses."""

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._jax import jax, jax_form, jnp
from pymc_scalable_gp.ops._kernels import cholesky_lower, invert_lower, symmetric_part
from pymc_scalable_gp.ops._numba import one_source
from pymc_scalable_gp.ops.stacked_product import stacked_product
from pymc_scalable_gp.ops.stacked_solve import stacked_solve
from pymc_scalable_gp.utils.jitter import GRAM_JITTER


class StackedCholesky(GufuncOp):
    """Stack of Cholesky factors (see `stacked_cholesky`)."""

    gufunc_signature = "(d,m,m)->(d,m,m)"

    def pullback(self, inputs, outputs, cotangents):
        r"""``dA = sym(L^{-T} P L^{-1})`` with ``P = tril(L' dL)`` and its diagonal halved [1]_."""
        (L,), (g,) = outputs, cotangents
        P = stacked_product(L, g, transpose_a=True) * half_lower(L.shape[1])
        left = stacked_solve(L, P, transpose=True)
        H = stacked_solve(L, left.transpose(0, 2, 1), transpose=True)
        return [0.5 * (H + H.transpose(0, 2, 1))]


class InverseCholesky(GufuncOp):
    """``L_i^{-1}`` with ``L_i L_i' = A_i + jitter tr(A_i) I`` (see `inverse_cholesky`)."""

    __props__ = ("jitter",)
    gufunc_signature = "(d,m,m)->(d,m,m)"

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


def stacked_cholesky(matrices):
    r"""Lower-triangular factors of symmetric positive definite matrices.

    .. math:: L_i L_i^\top = \tfrac12 (A_i + A_i^\top)

    Parameters
    ----------
    matrices : tensor, shape (d, m, m)
        O(d m^3) time.

    Returns
    -------
    tensor, shape (d, m, m)
        NaN for a matrix that is not finite or not positive definite.

    Notes
    -----
    ``pt.linalg.cholesky`` and its gradient, which Numba takes far longer to compile in PyTensor 3.3.

    References
    ----------
    .. [1] Giles, M. (2008). Collected matrix derivative results for forward and reverse mode
       algorithmic differentiation. https://doi.org/10.1007/978-3-540-68942-3_4

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A = np.array([[4.0, 2.0], [2.0, 5.0]])
    >>> sgp.ops.stacked_cholesky(np.stack([A, 4.0 * A])).eval()[1]
    array([[4., 0.],
           [2., 4.]])
    >>> np.linalg.cholesky(4.0 * A)
    array([[4., 0.],
           [2., 4.]])
    """
    return StackedCholesky()(matrices)


def inverse_cholesky(matrices, jitter: float = GRAM_JITTER):
    r"""Inverse Cholesky factors of symmetric positive semidefinite matrices.

    .. math:: W_i = L_i^{-1}, \qquad L_i L_i^\top = A_i + \epsilon\,\mathrm{tr}(A_i)\, I

    Parameters
    ----------
    matrices : tensor, shape (d, m, m)
        Symmetric; O(d m^3) time.
    jitter : float
        Epsilon: the result is a smooth function of the matrices, whatever their rank; times one for a
        matrix of zeros, such as that of a group without rows.

    Returns
    -------
    tensor, shape (d, m, m)
        Lower triangular. NaN for a matrix that is not finite or not positive semidefinite.

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
    return InverseCholesky(float(jitter))(matrices)


def half_lower(size):
    """Mask (size, size) of the lower triangle, with halves on its diagonal."""
    place = pt.arange(size)
    return pt.ge(place[:, None], place[None, :]) - 0.5 * pt.eq(place[:, None], place[None, :])


def cholesky(matrix):
    """`stacked_cholesky` of one matrix (m, m)."""
    return stacked_cholesky(pt.as_tensor(matrix)[None])[0]


@register_jitable
def factor(matrix, extra, out):
    """Overwrite `out` with the factor of ``(A + A') / 2 + extra I``; False where there is none."""
    symmetric_part(matrix, extra, out)
    return np.isfinite(np.sum(out)) and cholesky_lower(out)


@one_source(StackedCholesky)
def _factors(matrices):
    out = np.empty(matrices.shape)
    for i in range(len(matrices)):
        if not factor(matrices[i], 0.0, out[i]):
            out[i] = np.nan
    return out


@jax_form(StackedCholesky)
def _jax_factors(matrices):
    return jnp.linalg.cholesky(matrices)  # symmetrises, and gives NaN where it fails


@one_source(InverseCholesky)
def factor_inverses(matrices, jitter):
    out = np.empty(matrices.shape)
    for i in range(len(matrices)):
        trace = np.trace(matrices[i])
        extra = jitter * (trace if trace != 0.0 else 1.0)
        if not (factor(matrices[i], extra, out[i]) and invert_lower(out[i])):
            out[i] = np.nan
    return out


@jax_form(InverseCholesky)
def _jax_factor_inverses(matrices, jitter):
    eye = jnp.broadcast_to(jnp.eye(matrices.shape[1]), matrices.shape)
    trace = jnp.trace(matrices, axis1=1, axis2=2)
    extra = jitter * jnp.where(trace != 0.0, trace, 1.0)
    lower = jnp.linalg.cholesky(matrices + extra[:, None, None] * eye)
    return jax.scipy.linalg.solve_triangular(lower, eye, lower=True)
