"""Posterior of low-rank coefficients: the terms of `lowrank_logp`, every one of them differentiable."""

import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.tensor.linalg import solve_triangular

from pymc_scalable_gp.ops._base import connected
from pymc_scalable_gp.ops._jax import jax_form
from pymc_scalable_gp.ops._lowrank_terms import logp_terms
from pymc_scalable_gp.ops._numba import one_source
from pymc_scalable_gp.ops.lowrank_logp import LowRankLogp, LowRankTerms, jax_logp_terms, lowrank_inputs
from pymc_scalable_gp.ops.stacked_cholesky import half_lower
from pymc_scalable_gp.ops.stacked_product import product


class LowRankPosterior(LowRankLogp):
    """As `LowRankLogp`, for densities that depend on the posterior, as ``gp.conditional``'s does."""

    differentiable_outputs = (0, 1, 2, 3, 4)

    def pullback(self, inputs, outputs, cotangents):
        r"""Cotangents, with ``S = Phi W Phi' + D``, ``P = root' root``, ``a = alpha``, ``c = coef``.

        * of coef, with ``g = P c'``: ``Phi += a g' - D^-1 Phi g c'``, ``e += D^-1 Phi g``,
          ``D -= (Phi g) a / D``, ``w += g c / w^2``;
        * of alpha, with ``q = P Phi' D^-1 a'`` and ``h = D^-1 (a' - Phi q)``: ``e += h``,
          ``Phi -= h c' + a q'``, ``D -= h a``, ``w -= q c / w^2``;
        * of root, with ``M = -sym(low(R' root'))`` (`low` halves the diagonal) and
          ``G = root' M root``: ``Phi += 2 D^-1 Phi G``, ``D -= rowsum(Phi G * Phi) / D^2``,
          ``w_j += [(R' * root)_{.j} + 2 (root^-1 M root)_jj - 2 G_jj / w_j] / (2 w_j)``;

        and D's own, on to noise, and under "FITC" to kdiag, Phi and w.
        """
        phi, weights, noise, _residual, _kdiag = inputs
        variance = outputs[-1]
        bars = [c if connected(c) else None for c in cotangents]
        total = [pt.zeros_like(x) for x in (phi, weights, variance, variance)]  # Phi, w, D, e
        for bar, part in zip(bars[1:4], (_of_alpha, _of_coef, _of_root), strict=True):
            if bar is not None:
                total = _add(total, part(bar, phi, weights, *outputs[1:]))
        phi_bar, weights_bar, variance_bar, residual_bar = total
        if bars[4] is not None:
            variance_bar = variance_bar + bars[4]
        kdiag_bar = pt.zeros_like(variance)
        if self.approx == "FITC":
            kdiag_bar = variance_bar * pt.gt(variance, noise)
            phi_bar = phi_bar - 2.0 * kdiag_bar[:, None] * phi * weights
            weights_bar = weights_bar - product(phi**2, kdiag_bar, transpose_a=True)
        noise_bar = variance_bar if noise.ndim else variance_bar.sum()
        found = [phi_bar, weights_bar, noise_bar, residual_bar, kdiag_bar]
        if bars[0] is not None:
            first = [bars[0], *(disconnected_type() for _ in bars[1:])]
            found = _add(found, super().pullback(inputs, outputs, first))
        return found


def _add(left, right):
    return [a + b for a, b in zip(left, right, strict=True)]


def _of_coef(bar, phi, weights, alpha, coef, root, variance):
    g = product(root, product(root, bar), transpose_a=True)
    rows = product(phi, g) / variance
    phi_bar = alpha[:, None] * g - rows[:, None] * coef
    return phi_bar, g * coef / weights**2, -rows * alpha, rows


def _of_alpha(bar, phi, weights, alpha, coef, root, variance):
    inner = product(phi, bar / variance, transpose_a=True)
    q = product(root, product(root, inner), transpose_a=True)
    h = (bar - product(phi, q)) / variance
    phi_bar = -(h[:, None] * coef + alpha[:, None] * q)
    return phi_bar, -q * coef / weights**2, -h * alpha, h


def _of_root(bar, phi, weights, alpha, coef, root, variance):
    inner = product(bar, root, transpose_b=True) * half_lower(root.shape[0])
    M = -0.5 * (inner + inner.T)
    turned = product(M, root)
    G = product(root, turned, transpose_a=True)
    rows = product(phi, G) / variance[:, None]
    own = pt.diag(solve_triangular(root, turned, lower=True)) - pt.diag(G) / weights
    weights_bar = ((bar * root).sum(axis=0) + 2.0 * own) / (2.0 * weights)
    variance_bar = -(rows * phi).sum(axis=1) / variance
    return 2.0 * rows, weights_bar, variance_bar, pt.zeros_like(variance)


def lowrank_posterior(phi, noise, residual, *, weights=None, kdiag=None, approx="DTC") -> LowRankTerms:
    """Terms of `lowrank_logp` with a gradient for each: parameters and values are the same.

    The gradient costs O(n r^2 + r^3) and a second (n, r) array.
    """
    op = LowRankPosterior(approx)
    return LowRankTerms(*op(*lowrank_inputs(phi, noise, residual, weights, kdiag, approx)))


one_source(LowRankPosterior, strided=(0,))(logp_terms)
jax_form(LowRankPosterior)(jax_logp_terms)
