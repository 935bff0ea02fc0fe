"""Gauss quadrature for ``b' log(A + c I) b`` from the Lanczos coefficients of A and b."""

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._jax import jnp, register_jax
from pymc_scalable_gp.ops._numba import register_numba


class LogQuadrature(Op):
    """``e_1' log(T + c I) e_1`` and its gradient in alpha, beta and c (see `log_quadrature`)."""

    __props__ = ()
    differentiable_outputs = (0,)

    def make_node(self, alpha, beta, shift):
        inputs = [pt.as_tensor_variable(a).astype("float64") for a in (alpha, beta, shift)]
        if [a.ndim for a in inputs] != [1, 1, 0]:
            raise TypeError("LogQuadrature needs vectors alpha and beta and a scalar shift")
        alpha, beta, shift = inputs
        return Apply(self, inputs, [pt.dscalar(), alpha.type(), beta.type(), pt.dscalar()])

    def infer_shape(self, node, input_shapes):
        return [(), input_shapes[0], input_shapes[1], ()]

    def perform(self, node, inputs, output_storage):
        for storage, value in zip(output_storage, quadrature(*inputs), strict=True):
            storage[0] = np.asarray(value)

    def connection_pattern(self, node):
        return [[True, False, False, False]] * 3

    def pullback(self, inputs, outputs, cotangents):
        """The gradient comes with the value."""
        if isinstance(cotangents[0].type, DisconnectedType):
            return [disconnected_type() for _ in inputs]
        return [cotangents[0] * gradient for gradient in outputs[1:]]


def log_quadrature(alpha, beta, shift):
    r"""``q_1' log(A + c I) q_1`` for the unit start vector of a Lanczos run on A.

    .. math:: e_1^\top \log(T + c I)\, e_1 = \sum_k v_{1k}^2 \log(\max(\lambda_k, 0) + c)

    with the eigenpairs of ``T = tridiag(beta, alpha, beta)``: exact when the Krylov space is
    invariant, and otherwise a Gauss quadrature with P nodes.

    Parameters
    ----------
    alpha, beta : tensors, shape (P,)
        As `lanczos` returns them; the last beta is not used.
    shift : tensor, scalar
        c, positive.

    Returns
    -------
    tensor, scalar

    Notes
    -----
    O(P^3). The gradient uses divided differences of the logarithm, which are smooth where
    eigenvalues meet. It has no second derivative.

    References
    ----------
    .. [1] Ubaru, S., Chen, J. and Saad, Y. (2017). Fast Estimation of tr(f(A)) via Stochastic Lanczos
       Quadrature. https://doi.org/10.1137/16M1104974
    """
    return LogQuadrature()(alpha, beta, shift)[0]


def quadrature(alpha, beta, shift):
    """Value and gradients, in Python and Numba."""
    p = alpha.size
    T = np.zeros((p, p))
    for i in range(p):
        T[i, i] = alpha[i]
        if i > 0:
            T[i, i - 1] = T[i - 1, i] = beta[i - 1]
    g_alpha, g_beta = np.zeros(p), np.zeros(p)
    if p == 0 or not (np.isfinite(T).all() and shift > 0.0):
        return np.nan, g_alpha * np.nan, g_beta * np.nan, np.nan
    values, vectors = np.linalg.eigh(T)
    x = np.maximum(values, 0.0) + shift
    first = np.ascontiguousarray(vectors[0])
    g_shift = np.sum(first**2 / x)
    inner = np.empty((p, p))
    for j in range(p):
        for k in range(p):
            # (log a - log b) / (a - b), by log1p where a and b are close
            gap = (x[j] - x[k]) / x[k]
            slope = 1.0 / x[k]
            if abs(gap) > 1e-4:
                slope *= np.log1p(gap) / gap
            else:
                slope *= 1.0 - gap / 2.0 + gap * gap / 3.0 - gap**3 / 4.0
            if values[j] < 0.0 and values[k] < 0.0:
                slope = 0.0
            inner[j, k] = first[j] * slope * first[k]
    G = np.dot(np.dot(vectors, inner), np.ascontiguousarray(vectors.T))
    for i in range(p):
        g_alpha[i] = G[i, i]
        if i > 0:
            g_beta[i - 1] = 2.0 * G[i, i - 1]
    return np.sum(first**2 * np.log(x)), g_alpha, g_beta, g_shift


@register_numba(LogQuadrature)
def numba_log_quadrature(op):
    jitted = nb.numba_njit(quadrature)

    @nb.numba_njit
    def log_quadrature_values(alpha, beta, shift):
        value, g_alpha, g_beta, g_shift = jitted(alpha, beta, shift.item())
        return np.asarray(value), g_alpha, g_beta, np.asarray(g_shift)

    return log_quadrature_values


def jax_quadrature(alpha, beta, shift):
    """As `quadrature`."""
    T = jnp.diag(alpha) + jnp.diag(beta[:-1], 1) + jnp.diag(beta[:-1], -1)
    values, vectors = jnp.linalg.eigh(T)
    x, first = jnp.maximum(values, 0.0) + shift, vectors[0]
    gap = (x[:, None] - x) / x
    close = jnp.abs(gap) <= 1e-4
    safe = jnp.where(close, 1.0, gap)
    series = 1.0 - gap / 2.0 + gap**2 / 3.0 - gap**3 / 4.0
    slope = jnp.where(close, series, jnp.log1p(safe) / safe) / x
    negative = values < 0.0
    slope = jnp.where(negative[:, None] & negative, 0.0, slope)
    G = vectors @ (first[:, None] * slope * first) @ vectors.T
    g_beta = jnp.concatenate([2.0 * jnp.diag(G, 1), jnp.zeros(1)])
    return (first**2 * jnp.log(x)).sum(), jnp.diag(G), g_beta, (first**2 / x).sum()


@register_jax(LogQuadrature)
def jax_log_quadrature(op):
    return jax_quadrature
