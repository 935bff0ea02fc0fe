"""The arithmetic of `lowrank_logp`, one source for Python and Numba."""

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._elementwise import (
    add,
    add_product,
    add_square,
    all_finite,
    all_positive,
    feature_cotangent,
    fill_from,
    multiply_by,
    set_product,
    set_ratio,
    subtract,
    subtract_from,
    sum_log,
    sum_product,
    sum_product3,
)
from pymc_scalable_gp.ops._kernels import (
    add_gram,
    cholesky_lower,
    empty_matrix,
    invert_lower,
    matvec,
    multiply_any,
    norm_one,
    qr_transposed,
)
from pymc_scalable_gp.ops._numba import contiguous

# H is B = I + Phi' D^-1 Phi scaled to a unit diagonal. Above this estimate of cond(H) B is no longer
# formed: its factor comes from a QR of [D^-1/2 Phi W^1/2; I]. The Gram route loses about
# eps * cond(H): measured 1e-11 in the value and 2e-10 in the gradient at this bound.
GRAM_CONDITION_BOUND = 1e8


LOG_2PI = np.log(2.0 * np.pi)

APPROXIMATIONS = ("DTC", "FITC", "VFE")
DTC, FITC, VFE = range(len(APPROXIMATIONS))


_BLOCK = 2048


def logp_terms(phi, weights, noise, residual, kdiag, approx):
    """Outputs of `LowRankLogp`."""
    phi_t = contiguous(phi.T)
    r, n = phi_t.shape
    root_w = np.sqrt(weights)
    variance = np.empty(n)
    fill_from(variance, noise)
    slack = _slack(phi_t, weights, kdiag, approx)
    if approx == FITC:
        add(variance, slack)
    lower, coef, alpha = np.full((r, r), np.nan), np.full(r, np.nan), np.full(n, np.nan)
    failed = np.asarray(np.nan), alpha, coef, lower, variance
    if not (all_positive(weights) and all_positive(variance) and all_finite(residual)):
        return failed
    uniform = noise.size == 1 and approx != FITC
    _gram(phi_t, variance, uniform, lower)
    logdet, sharp = factor_scaled(root_w, lower)
    beta = np.zeros(r)
    if not sharp and not np.isnan(logdet):
        logdet = factor_qr(phi_t, root_w, variance, residual, lower, beta)
    if np.isnan(logdet):
        lower[:] = np.nan
        return failed
    _refine(phi_t, root_w, variance, residual, lower, beta, alpha)
    quad = sum_product3(alpha, alpha, variance) + sum_product(beta, beta)
    if approx == VFE:
        set_ratio(slack, slack, variance)
        quad += np.sum(slack)
    logp = -0.5 * (quad + logdet + sum_log(variance) + n * LOG_2PI)
    for i in range(r):
        set_product(lower[i], lower[i], root_w)
    set_product(coef, beta, root_w)
    return np.asarray(logp), alpha, coef, lower, variance


@register_jitable
def _refine(phi_t, root_w, variance, residual, lower, beta, alpha):
    """Ridge solution `beta` from the factor ``B^-1 = lower' lower``; two steps of two passes each."""
    coef, step, turned = np.empty_like(beta), np.empty_like(beta), np.empty_like(beta)
    for sweep in range(3):
        set_product(coef, beta, root_w)
        matvec(phi_t, coef, True, alpha)
        subtract_from(alpha, residual)
        set_ratio(alpha, alpha, variance)
        if sweep < 2:
            matvec(phi_t, alpha, False, step)
            set_product(step, step, root_w)
            subtract(step, beta)
            matvec(lower, step, False, turned)
            matvec(lower, turned, True, step)
            add(beta, step)


@register_jitable
def _slack(phi_t, weights, kdiag, approx):
    """``max(kdiag - ||W^1/2 phi_i||^2, 0)`` in blocks that stay in cache; zero for DTC."""
    r, n = phi_t.shape
    if approx == DTC:
        return np.zeros(n)
    out = kdiag.copy()
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        for j in range(r):
            add_square(out[start:stop], -weights[j], phi_t[j, start:stop])
    return np.maximum(out, 0.0)


@register_jitable
def _gram(phi_t, variance, uniform, lower):
    """``lower = Phi' D^-1 Phi`` (lower triangle)."""
    r, n = phi_t.shape
    lower[:] = 0.0
    if uniform and n > 0:
        add_gram(phi_t, lower)
        for j in range(r):
            multiply_by(lower[j], 1.0 / variance[0])
        return
    block = np.empty((r, min(_BLOCK, n)))
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        scale = 1.0 / np.sqrt(variance[start:stop])
        for j in range(r):
            set_product(block[j, : stop - start], phi_t[j, start:stop], scale)
        add_gram(block[:, : stop - start], lower)


@register_jitable
def factor_scaled(root_w, lower):
    """Inverse Cholesky factor of ``B = I + W^1/2 lower W^1/2``, which overwrites the triangle `lower`.

    Returns log det B, NaN for bad input, and whether B is well conditioned.
    """
    r = lower.shape[0]
    scale = np.empty(r)
    for i in range(r):
        scale[i] = 1.0 / np.sqrt(1.0 + root_w[i] * root_w[i] * lower[i, i])
    if not all_positive(scale):
        return np.nan, False
    both = root_w * scale
    for i in range(r):
        multiply_by(lower[i], both[i])
        set_product(lower[i], lower[i], both)
        lower[i, i] = 1.0
    size = norm_one(lower)
    if not cholesky_lower(lower):
        return 0.0, False
    logdet = -2.0 * sum_log(scale)
    for i in range(r):
        logdet += 2.0 * np.log(lower[i, i])
    if not invert_lower(lower):
        return 0.0, False
    inverse = np.zeros(r)  # diag(H^-1): its largest entry is 1 / lambda_min within a factor r
    largest = 0.0
    for i in range(r):
        add_square(inverse, 1.0, lower[i])
    for i in range(r):
        largest = max(largest, inverse[i])
        set_product(lower[i], lower[i], scale)
    return logdet, size * largest < GRAM_CONDITION_BOUND


@register_jitable
def factor_qr(phi_t, root_w, variance, residual, lower, beta):
    """``R^-T`` of ``[D^-1/2 Phi W^1/2 | e; I | 0] = Q R`` by QR in row blocks, and the ridge solution."""
    r, n = phi_t.shape
    rows = max(4 * r, 256)
    work = np.zeros((r + 1, r + 1 + rows))
    for i in range(r):
        work[i, i] = 1.0
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        scale = 1.0 / np.sqrt(variance[start:stop])
        for j in range(r):
            set_product(work[j, r + 1 : r + 1 + stop - start], phi_t[j, start:stop], scale * root_w[j])
        set_product(work[r, r + 1 : r + 1 + stop - start], residual[start:stop], scale)
        work[:, r + 1 + stop - start :] = 0.0
        qr_transposed(work)
        for i in range(r + 1):
            work[i, i + 1 : r + 1] = 0.0
    logdet = 0.0
    for i in range(r):
        fill_from(lower[i], work[i, :r])
        logdet += 2.0 * np.log(abs(lower[i, i]))
    if not invert_lower(lower) or not np.isfinite(norm_one(lower)):
        return np.nan
    matvec(lower, work[r, :r].copy(), True, beta)
    return logdet


@register_jitable
def _inverse_diagonal(phi_t, weights, variance):
    """``diag(S^-1)`` from S itself, where there are no more rows than features.

    With small noise D, ``1/D - phi' M phi / D^2`` would be a difference of numbers that agree.
    """
    r, n = phi_t.shape
    rows, S, out = np.empty((n, r)), np.zeros((n, n)), np.zeros(n)
    for j in range(r):
        fill_from(rows[:, j], phi_t[j])
        multiply_by(rows[:, j], np.sqrt(weights[j]))
    add_gram(rows, S)
    for i in range(n):
        S[i, i] += variance[i]
    if not (cholesky_lower(S) and invert_lower(S)):
        return np.full(n, np.nan)
    for i in range(n):
        add_square(out, 1.0, S[i])
    return out


def logp_grad(phi, weights, noise, residual, kdiag, logp, alpha, coef, root, variance, cotangent, approx):
    """Outputs of `LowRankLogpGrad`."""
    phi_t, g = contiguous(phi.T), cotangent.item()
    r, n = phi_t.shape
    middle = np.empty((r, r))
    multiply_any(root, root, True, False, middle)
    phi_bar = empty_matrix(r, n)
    noise_bar, kdiag_bar, missed = np.zeros(n), np.zeros(n), np.zeros(r)
    own = _inverse_diagonal(phi_t, weights, variance) if n <= r else np.zeros(0)
    for start in range(0, n, 512):
        stop = min(start + 512, n)
        block, out = phi_t[:, start:stop], phi_bar[:, start:stop]
        multiply_any(middle, block, False, False, out)
        quad, slope = np.zeros(stop - start), np.zeros(stop - start)
        for j in range(r):
            add_product(quad, out[j], block[j])
        inverse = 1.0 / variance[start:stop]
        a = alpha[start:stop]
        shrunk = own[start:stop] if n <= r else (1.0 - quad * inverse) * inverse
        row_bar = 0.5 * (a * a - shrunk)
        if approx != DTC:
            slack = _slack(block, weights, kdiag[start:stop], approx)
            if approx == FITC:
                slope = row_bar * (slack > 0.0)
            else:
                slope = -0.5 * inverse * (slack > 0.0)
                row_bar += 0.5 * slack * inverse * inverse
        fill_from(noise_bar[start:stop], g * row_bar)
        fill_from(kdiag_bar[start:stop], g * slope)
        ga, gi = g * a, g * inverse
        for j in range(r):
            feature_cotangent(out[j], coef[j], ga, gi, 2.0 * g * weights[j] * slope, block[j])
            if approx != DTC:
                missed[j] += g * sum_product3(slope, block[j], block[j])
    return phi_bar.T, noise_bar, kdiag_bar, missed
