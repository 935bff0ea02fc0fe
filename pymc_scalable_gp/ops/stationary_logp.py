"""Log density of features plus block Vecchia under a stationary kernel, block after block."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.ops import _vecchia_batches as batches
from pymc_scalable_gp.ops._block_factor import StationaryBlockOp, summed
from pymc_scalable_gp.ops._numba import numba_form
from pymc_scalable_gp.ops._vecchia_stream import stream_grad, stream_logp


class StationaryLogp(StationaryBlockOp):
    """Log density, coefficients, their root, the residual less what they explain, and its slope.

    See `stationary_logp`; the slope is ``(Phi Phi' + S)^-1 e``, of opposite sign. Only the first can be
    differentiated.
    """

    gufunc_signature = "(n,d),(t,d),(q),(t),(w,n),(n,r),(n),(n),(b,k)->(),(r),(r,r),(n),(n)"
    discrete = (8,)
    differentiable_outputs = (0,)

    def values(self, xp, X, scale, variance, shape, rows, phi, noise, residual, neighbors):
        """By all regressions at once, and `lowrank_logp` of whitened columns."""
        A, L, _ = self.factor(xp, X, scale, variance, shape, rows, phi, noise, neighbors, 0)
        found = batches.density(A, L, phi, residual[None], neighbors, xp)
        return tuple(each if place == 2 else each[0] for place, each in enumerate(found))

    def pullback(self, inputs, outputs, cotangents):
        """See `StationaryLogpGrad`; the residual's slope is known."""
        X, scale, variance, shape, rows, phi, noise, _, neighbors = inputs
        X_bar, *found = StationaryLogpGrad(self.summands, self.block, self.moving)(
            X, scale, variance, shape, rows, phi, noise, *outputs[1:4], neighbors, cotangents[0]
        )
        found.append(-cotangents[0] * outputs[4])
        return [X_bar, *found] if self.moving else found


class StationaryLogpGrad(StationaryBlockOp):
    """Cotangents of inputs, inverse lengthscales, variance, alpha, rows' factors, features and noise."""

    gufunc_signature = (
        "(n,d),(t,d),(q),(t),(w,n),(n,r),(n),(r),(r,r),(n),(b,k),()->(z,d),(t,d),(q),(t),(w,n),(n,r),(n)"
    )
    discrete = (10,)

    def values(
        self, xp, X, scale, variance, shape, rows, phi, noise, coef, root, rest, neighbors, bar
    ):  # fmt: skip
        """By the cotangents of whitened columns."""
        A, L, F = self.factor(xp, X, scale, variance, shape, rows, phi, noise, neighbors, 0)
        back, *bars = batches.density_grad(
            A, L, phi, coef[None], root, rest[None], neighbors, bar[None], xp
        )
        *kernel, phi_bar, noise_bar = self.factor_grad(
            xp, X, scale, variance, shape, rows, phi, noise, neighbors, 0, A, L, F, *bars
        )
        return *kernel, phi_bar + back, noise_bar


def stationary_logp(
    kind, X, scale, variance, shape, phi, noise, residual, neighbors, block, moving=False, rows=None
):
    """Log density of `residual` (n,) under ``N(0, Phi Phi' + S)``, S of block-Vecchia form.

    ``-(w'w + beta'beta + log det B + n log 2 pi) / 2 - sum_j log L_jj``, with ``B = I + Phi' S^-1 Phi``,
    ``beta = B^-1 Phi' S^-1 e`` and ``w = S^-1/2 (e - Phi beta)``; L, and the other arguments, are those of
    `stationary_factor`. In Numba blocks are streamed, and the gradient computes them once more: besides the
    arguments only n (k + g) numbers are kept. A covariance that is not positive definite gives NaN.
    """
    summands, *parameters = summed(kind, X, scale, variance, shape, rows)
    inputs = (X, *parameters, phi, noise, residual, neighbors)
    return StationaryLogp(summands, block, moving)(*(pt.as_tensor(x) for x in inputs))[0]


@numba_form(StationaryLogp)
def _logp(X, scale, variance, shape, rows, phi, noise, residual, neighbors, terms, g, moving):
    logp, coef, root, rest, alpha = stream_logp(
        X, scale, variance, shape, rows, phi, noise, residual.reshape((1, len(residual))), neighbors,
        terms, g,
    )  # fmt: skip
    return np.asarray(logp[0]), coef[0], root, rest[0], alpha[0]


@numba_form(StationaryLogpGrad)
def _logp_grad(
    X, scale, variance, shape, rows, phi, noise, coef, root, rest, neighbors, bar, terms, g, moving
):  # fmt: skip
    X_bar = np.zeros((len(X) * moving, X.shape[1]))
    bars, phi_bar, noise_bar = stream_grad(
        X, scale, variance, shape, rows, phi, noise, neighbors, coef.reshape((1, len(coef))), root,
        rest.reshape((1, len(rest))), bar.reshape((1,)), terms, g, X_bar,
    )  # fmt: skip
    return X_bar, bars[0], bars[1], bars[2], bars[3], phi_bar, noise_bar
