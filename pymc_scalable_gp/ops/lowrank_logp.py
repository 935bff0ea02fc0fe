"""Log density of ``N(mu, Phi diag(w) Phi' + D)`` in O(n r^2), with its hand-written gradient."""

from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._jax import jax, jax_form, jnp
from pymc_scalable_gp.ops._lowrank_terms import (
    APPROXIMATIONS,
    FITC,
    GRAM_CONDITION_BOUND,
    LOG_2PI,
    VFE,
    logp_grad,
    logp_terms,
)
from pymc_scalable_gp.ops._numba import one_source


class LowRankTerms(NamedTuple):
    """Outputs of `lowrank_logp`."""

    logp: TensorVariable
    alpha: TensorVariable  # S^-1 e, (n,)
    coef: TensorVariable  # posterior mean of the coefficients, (r,)
    root: TensorVariable  # lower triangular, root' root their covariance, (r, r)
    variance: TensorVariable  # D, (n,)


class LowRankLogp(GufuncOp):
    r"""Terms of the low-rank Gaussian log density (docstring of :func:`lowrank_logp`).

    Outputs: those of `LowRankTerms`, with ``coef = W Phi' alpha`` and ``root' root = W^1/2 B^-1 W^1/2``.
    Only logp can be differentiated.
    """

    __props__ = ("approx",)
    differentiable_outputs = (0,)

    def __init__(self, approx="DTC"):
        if approx not in APPROXIMATIONS:
            raise ValueError(f"approx must be one of {APPROXIMATIONS}, got {approx!r}")
        self.approx = approx

    def signature(self, inputs):
        """One noise variance, or one per row."""
        noise = "(n)" if inputs[2].ndim else "()"
        return f"(n,r),(r),{noise},(n),(n)->(),(n),(r),(r,r),(n)"

    def options(self):
        """The approximation as a number, for Numba."""
        return (APPROXIMATIONS.index(self.approx),)

    def pullback(self, inputs, outputs, cotangents):
        r"""Cotangents, with ``S = Phi W Phi' + D``, ``a = S^-1 e``, ``u = W Phi' a``, ``M = root' root``.

        ``dPhi = a u' - D^-1 Phi M``, ``de = -a``, ``dD_i = (a_i^2 - [S^-1]_ii) / 2``,
        ``dw_j = ((u_j/w_j)^2 - (1 - M_jj/w_j)/w_j) / 2``, ``[S^-1]_ii = 1/D_i - phi_i' M phi_i/D_i^2``.
        """
        phi, weights, noise, _residual, _kdiag = inputs
        _logp, alpha, coef, root, _variance = outputs
        g = cotangents[0]
        phi_bar, noise_bar, kdiag_bar, missed = LowRankLogpGrad(self.approx)(*inputs, *outputs, g)
        shrinkage = 1.0 - (root**2).sum(axis=0) / weights  # 1 - [B^-1]_jj
        weights_bar = 0.5 * g * ((coef / weights) ** 2 - shrinkage / weights)
        if self.approx != "DTC":
            weights_bar = weights_bar - missed
        n, r = phi.type.shape
        tall = n is not None and r is not None and n > r
        if noise.ndim == 0 and self.approx == "DTC" and tall:
            # tr S^-1 = (n - r + tr B^-1) / noise: no pass over the rows when Phi needs no gradient.
            # All digits of n - r + tr B^-1 may cancel where n <= r.
            trace = (phi.shape[0] - shrinkage.sum()) / noise
            noise_bar = 0.5 * g * ((alpha**2).sum() - trace)
        elif noise.ndim == 0:
            noise_bar = noise_bar.sum()
        return [phi_bar, weights_bar, noise_bar, -alpha * g, kdiag_bar]


class LowRankLogpGrad(GufuncOp):
    """Cotangents of Phi, of the noise of each row, of kdiag, and the weights' trace term."""

    __props__ = ("approx",)

    def signature(self, inputs):
        """Inputs of `LowRankLogp`, its outputs, and the cotangent of logp."""
        noise = "(n)" if inputs[2].ndim else "()"
        return f"(n,r),(r),{noise},(n),(n),(),(n),(r),(r,r),(n),()->(n,r),(n),(n),(r)"

    def options(self):
        return (APPROXIMATIONS.index(self.approx),)


def lowrank_logp(phi, noise, residual, *, weights=None, kdiag=None, approx="DTC") -> LowRankTerms:
    r"""Log density of ``residual`` under ``N(0, Phi W Phi' + D)``, in O(n r^2).

    .. math::

        \log p = -\tfrac12 \bigl(\|\bar e - \bar\Phi\beta\|^2 + \|\beta\|^2
                  + 2\textstyle\sum_j \log|R_{jj}| + \sum_i \log D_i + n\log 2\pi\bigr),
        \qquad \begin{bmatrix}\bar\Phi \\ I\end{bmatrix} = QR,
        \quad R\beta = Q^\top\begin{bmatrix}\bar e \\ 0\end{bmatrix},

    with :math:`\bar\Phi = D^{-1/2}\Phi W^{1/2}` and :math:`\bar e = D^{-1/2}e`. ``R`` comes from the
    Cholesky factor of :math:`B = I + \bar\Phi^\top\bar\Phi` while the condition number of B (scaled to a
    unit diagonal) stays under ``GRAM_CONDITION_BOUND``, else from a QR in row blocks. The quadratic
    form is a sum of squares at the ridge solution, so errors in :math:`\beta` enter squared.

    Parameters
    ----------
    phi : tensor, shape (n, r)
        Features. Stored column by column (the transpose of a C-ordered (r, n) array) costs no copy.
    noise : tensor, scalar or shape (n,)
        Noise *variance*, of all rows or of each.
    residual : tensor, shape (n,)
        ``y - mean``.
    weights : tensor, shape (r,), optional
        Positive prior variances of the features' coefficients; 1 when left out.
    kdiag : tensor, shape (n,), optional
        ``k(x_i, x_i)``; needed by "FITC" and "VFE".
    approx : {"DTC", "FITC", "VFE"}
        ``D = noise`` | ``D_i = noise + max(kdiag_i - ||W^1/2 phi_i||^2, 0)`` | DTC plus the term
        ``-1/2 sum_i max(kdiag_i - ||W^1/2 phi_i||^2, 0) / noise_i``.

    Returns
    -------
    LowRankTerms
        ``logp`` (scalar), ``alpha`` (n,) ``= S^-1 e``, ``coef`` (r,) and lower-triangular ``root``
        (r, r): posterior mean and covariance ``root.T @ root`` of the coefficients; ``variance``
        (n,) ``= D``.
        Only ``logp`` is differentiable (with respect to all inputs). A failed factorisation, a
        variance or weight that is not positive, or a non-finite input gives NaN.

    See Also
    --------
    pymc_scalable_gp.LowRankNormal : The distribution, for a model.

    Notes
    -----
    Memory: O(r^2) and one row block besides the inputs; the gradient adds its own (n, r) result.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> import pymc_scalable_gp as sgp
    >>> phi, residual = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 0.5, -0.5])
    >>> print(sgp.ops.lowrank_logp(phi, 0.25, residual).logp.eval().round(4))
    -5.6638
    >>> S = phi @ phi.T + 0.25 * np.eye(3)
    >>> print(stats.multivariate_normal(cov=S).logpdf(residual).round(4))
    -5.6638
    """
    op = LowRankLogp(approx)
    return LowRankTerms(*op(*lowrank_inputs(phi, noise, residual, weights, kdiag, approx)))


def lowrank_inputs(phi, noise, residual, weights, kdiag, approx):
    """Inputs of the Op in their order, with defaults filled in."""
    residual = pt.as_tensor_variable(residual)
    phi = pt.as_tensor_variable(phi)
    if weights is None:
        weights = pt.ones(phi.type.shape[-1] or (phi.shape[-1],), dtype="float64")
    if kdiag is None:
        if approx != "DTC":
            raise ValueError(f"approx={approx!r} needs kdiag, the prior variances k(x_i, x_i)")
        kdiag = pt.zeros_like(residual, dtype="float64")
    return phi, weights, noise, residual, kdiag


one_source(LowRankLogp, strided=(0,))(logp_terms)
one_source(LowRankLogpGrad, strided=(0,))(logp_grad)


@jax_form(LowRankLogp)
def jax_logp_terms(phi, weights, noise, residual, kdiag, approx):
    """Same algebra, without row blocks; both routes are compiled and ``lax.cond`` takes one."""
    slack = jnp.maximum(kdiag - (phi**2) @ weights, 0.0)
    variance = jnp.broadcast_to(noise, residual.shape) + (slack if approx == FITC else 0)
    root_d, root_w = jnp.sqrt(variance), jnp.sqrt(weights)
    scaled, target = phi * root_w / root_d[:, None], residual / root_d
    lower, logdet, condition = _jax_gram(scaled)
    sharp = condition < GRAM_CONDITION_BOUND
    lower, logdet = jax.lax.cond(sharp, lambda: (lower, logdet), lambda: _jax_qr(scaled))
    beta = jnp.zeros_like(weights)
    for _ in range(3):
        step = scaled.T @ (target - scaled @ beta) - beta
        beta = beta + lower.T @ (lower @ step)
    rest = target - scaled @ beta
    quad = (rest**2).sum() + (beta**2).sum()
    if approx == VFE:
        quad = quad + (slack / variance).sum()
    logp = -0.5 * (quad + logdet + jnp.log(variance).sum() + len(residual) * LOG_2PI)
    logp = jnp.where((weights > 0).all() & (variance > 0).all(), logp, jnp.nan)
    return logp, rest / root_d, beta * root_w, lower * root_w, variance


def _jax_gram(scaled):
    """Inverse Cholesky factor of ``B = I + scaled' scaled``, ``log|B|``, and B's condition number."""
    b = jnp.eye(scaled.shape[1]) + scaled.T @ scaled
    s = 1.0 / jnp.sqrt(jnp.diag(b))
    h = b * s[:, None] * s
    chol = jnp.linalg.cholesky(h)
    inverse = jax.scipy.linalg.solve_triangular(chol, jnp.eye(len(h)), lower=True)
    condition = jnp.abs(h).sum(axis=0).max(initial=0.0)
    condition *= (inverse**2).sum(axis=0).max(initial=0.0)
    return inverse * s, 2.0 * (jnp.log(jnp.diag(chol)) - jnp.log(s)).sum(), condition


def _jax_qr(scaled):
    """The first two by a QR factor."""
    r = jnp.linalg.qr(jnp.concatenate([scaled, jnp.eye(scaled.shape[1])]), mode="r")
    inverse = jax.scipy.linalg.solve_triangular(r.T, jnp.eye(len(r)), lower=True)
    return inverse, 2.0 * jnp.log(jnp.abs(jnp.diag(r))).sum()


@jax_form(LowRankLogpGrad, differentiable=False)
def _jax_logp_grad(phi, weights, noise, residual, kdiag, logp, alpha, coef, root, variance, g, approx):
    projected = phi @ (root.T @ root)
    shrunk = (1.0 - (projected * phi).sum(1) / variance) / variance
    if phi.shape[0] <= phi.shape[1]:
        S = (phi * weights) @ phi.T + jnp.diag(variance)
        shrunk = jnp.diag(jnp.linalg.inv(S))
    row_bar = 0.5 * (alpha**2 - shrunk)
    slack = jnp.maximum(kdiag - (phi**2) @ weights, 0.0)
    slope = jnp.zeros_like(alpha)
    if approx == FITC:
        slope = row_bar * (slack > 0)
    elif approx == VFE:
        slope = -0.5 / variance * (slack > 0)
        row_bar = row_bar + 0.5 * slack / variance**2
    phi_bar = alpha[:, None] * coef - projected / variance[:, None]
    phi_bar = phi_bar - 2.0 * slope[:, None] * weights * phi
    return g * phi_bar, g * row_bar, g * slope, g * (slope @ phi**2)
