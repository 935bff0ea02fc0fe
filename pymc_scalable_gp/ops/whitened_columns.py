"""Root of a Nystrom approximation, ``M L^{-T}`` with ``L L' = G'M`` and M = K G."""

import numpy as np
from numba.extending import register_jitable
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._jax import jax, jnp, register_jax
from pymc_scalable_gp.ops._kernels import cholesky_lower, invert_lower
from pymc_scalable_gp.ops._numba import inlined, register_numba


class WhitenedColumns(GufuncOp):
    """``M L^{-T}`` with ``L L' = S + jitter tr(S) I``, ``S = G'M`` (see `whitened_columns`)."""

    __props__ = ("jitter",)
    gufunc_signature = "(m,r),(m,r)->(m,r)"

    def __init__(self, jitter):
        self.jitter = float(jitter)

    def perform(self, node, inputs, output_storage):
        M, G = inputs
        output_storage[0][0] = whiten(M, G, self.jitter)

    def pullback(self, inputs, outputs, cotangents):
        """See `WhitenedColumnsGrad`."""
        (M, G), (g,) = inputs, cotangents
        return list(WhitenedColumnsGrad(self.jitter)(M, G, outputs[0], g))


class WhitenedColumnsGrad(GufuncOp):
    r"""Cotangents of M and G, from the result U and its cotangent H. It has no gradient itself.

    ``dS = sym(W' P W) + jitter tr(.) I`` with ``W = L^{-1}`` and ``P`` the lower triangle of ``-H'U``,
    its diagonal halved; ``dM = H W + G dS`` and ``dG = M dS``.
    """

    __props__ = ("jitter",)
    gufunc_signature = "(m,r),(m,r),(m,r),(m,r)->(m,r),(m,r)"

    def __init__(self, jitter):
        self.jitter = float(jitter)

    def perform(self, node, inputs, output_storage):
        output_storage[0][0], output_storage[1][0] = _gradient.py_func(*inputs, self.jitter)


def whitened_columns(M, G, jitter: float = 1e-10):
    r"""Root of the best approximation of a matrix K in the space of given directions G.

    .. math:: U U^\top = M\,(S + \epsilon\,\mathrm{tr}(S)\, I)^{-1} M^\top, \qquad M = K G,\; S = G^\top M

    Parameters
    ----------
    M : tensor, shape (m, r)
        K G, with K symmetric and positive semidefinite; or ``F'G`` for ``K = F F'``, and then
        `G` is M itself and ``F U`` the root.
    G : tensor, shape (m, r)
    jitter : float
        Epsilon.

    Returns
    -------
    U : tensor, shape (m, r)
        NaN where the factorisation fails. Differentiable once in both.

    Notes
    -----
    O(m r^2 + r^3). K is not exceeded: ``K - U U'`` is positive semidefinite.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> K, G = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[1.0], [0.0]])
    >>> U = sgp.ops.whitened_columns(K @ G, G).eval()
    >>> (U @ U.T).round(3)
    array([[2. , 1. ],
           [1. , 0.5]])
    """
    return WhitenedColumns(jitter)(M, G)


def whiten(M, G, jitter):
    """Value of `whitened_columns`, of arrays."""
    return M @ _inverse_factor(M, G, jitter).T


@register_jitable
def _inverse_factor(M, G, jitter):
    """``L^{-1}`` with zeros above its diagonal, or NaN."""
    r = M.shape[1]
    lower = np.zeros((r, r))
    if M.shape[0] == 0 or r == 0:
        return lower
    S = np.dot(np.ascontiguousarray(G).T, np.ascontiguousarray(M))
    for i in range(r):
        lower[i, : i + 1] = 0.5 * (S[i, : i + 1] + S[: i + 1, i])
    extra = jitter * np.trace(S)
    for i in range(r):
        lower[i, i] += extra
    if not cholesky_lower(lower):
        lower[:] = np.nan
        return lower
    invert_lower(lower)
    return lower


@inlined
def _gradient(M, G, U, H, jitter):
    r = M.shape[1]
    if M.shape[0] == 0 or r == 0:
        return np.zeros(M.shape), np.zeros(M.shape)
    W = _inverse_factor(M, G, jitter)
    H = np.ascontiguousarray(H)
    P = np.dot(H.T, np.ascontiguousarray(U))
    for i in range(r):
        P[i, i] *= 0.5
        P[i, i + 1 :] = 0.0
    half = -np.dot(np.dot(W.T, P), W)
    S_bar = 0.5 * (half + half.T)
    extra = jitter * np.trace(S_bar)
    for i in range(r):
        S_bar[i, i] += extra
    M_bar = np.dot(H, W) + np.dot(np.ascontiguousarray(G), S_bar)
    return M_bar, np.dot(np.ascontiguousarray(M), S_bar)


@register_numba(WhitenedColumns)
def numba_whitened_columns(op):
    jitter = op.jitter

    @nb.numba_njit
    def whitened(M, G):
        M = np.ascontiguousarray(M)
        return np.dot(M, _inverse_factor(M, G, jitter).T)

    return whitened


@register_numba(WhitenedColumnsGrad)
def numba_whitened_columns_grad(op):
    jitter = op.jitter

    @nb.numba_njit
    def gradient(M, G, U, H):
        return _gradient(M, G, U, H, jitter)

    return gradient


def _jax_inverse_factor(M, G, jitter):
    S = G.T @ M
    S = 0.5 * (S + S.T)
    L = jnp.linalg.cholesky(S + jitter * jnp.trace(S) * jnp.eye(S.shape[0]))
    return jax.scipy.linalg.solve_triangular(L, jnp.eye(S.shape[0]), lower=True)


@register_jax(WhitenedColumns)
def jax_whitened_columns(op):
    def forward(M, G):
        return M @ _jax_inverse_factor(M, G, op.jitter).T

    return forward


@register_jax(WhitenedColumnsGrad, differentiable=False)
def jax_whitened_columns_grad(op):
    def gradient(M, G, U, H):
        W = _jax_inverse_factor(M, G, op.jitter)
        P = jnp.tril(H.T @ U)
        P = P - 0.5 * jnp.diag(jnp.diag(P))
        half = -W.T @ P @ W
        S_bar = 0.5 * (half + half.T)
        S_bar = S_bar + op.jitter * jnp.trace(S_bar) * jnp.eye(S_bar.shape[0])
        return H @ W + G @ S_bar, M @ S_bar

    return gradient
