"""Normal vectors of many tasks that share a low-rank kernel: likelihood and posterior by task."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal, white
from pymc_scalable_gp.ops.segments import segment_gram, segment_times
from pymc_scalable_gp.ops.stacked_cholesky import cholesky, stacked_cholesky
from pymc_scalable_gp.ops.stacked_product import product, stacked_product
from pymc_scalable_gp.ops.stacked_solve import lower_solve, stacked_solve


class TaskPosterior(NamedTuple):
    r"""``f_i = a_i' (Z b_t + sqrt(v_t) z_t)`` given ``y_i = f_i + e_i``, with t the task of row i.

    With ``G_t = sum_i a_i a_i' / D_i`` and ``h_t = sum_i a_i y_i / D_i`` over the rows of a task, no
    quantity of size n is left: the tasks' own coefficients are integrated out first, the shared ones
    second,

    .. math::

        L_t L_t^\top = I + v_t G_t, \qquad
        M = I + \sum_t (I + v_t G_t)^{-1} G_t \otimes b_t b_t^\top, \qquad
        M\,\mathrm{vec}(Z) = \sum_t (I + v_t G_t)^{-1} h_t \otimes b_t .
    """

    own: TensorVariable  # L_t^-1 (s, a, a)
    projected: TensorVariable  # L_t^-1 h_t (s, a)
    shared: TensorVariable  # Cholesky factor of M (a q, a q)
    whitened: TensorVariable  # its inverse times M's right-hand side (a q,)
    mean: TensorVariable  # posterior mean of each task's coefficients (s, a)
    penalty: TensorVariable  # squared length of the standard normal coefficients at that mean

    @classmethod
    def of(cls, residual, variance, A, task, B, v):
        """From residuals (n,), D (n,), A (n, a), task (n,), factors B (s, q) and variances v (s,)."""
        (s, q), a = B.type.shape, A.type.shape[1]
        weighted = pt.concatenate([A, residual[:, None]], axis=1) / variance[:, None]
        both = segment_gram(A, weighted, task, s)  # G_t beside h_t
        eye = pt.eye(a)
        L = stacked_cholesky(eye + v[:, None, None] * both[:, :, :-1])
        own = stacked_solve(L, pt.broadcast_to(eye, (s, a, a)))
        half = stacked_product(own, both)
        shrunk = stacked_product(own, half, transpose_a=True)  # (I + v G)^-1 [G, h]
        H, u = shrunk[:, :, :-1], shrunk[:, :, -1]
        pairs = (B[:, :, None] * B[:, None, :]).reshape((s, q * q))
        M = product(H.reshape((s, a * a)), pairs, transpose_a=True).reshape((a, a, q, q))
        M = pt.eye(a * q) + M.transpose((0, 2, 1, 3)).reshape((a * q, a * q))
        shared = cholesky(M)
        whitened = lower_solve(shared, product(u, B, transpose_a=True).ravel())
        Z = lower_solve(shared, whitened, transpose=True).reshape((a, q))
        common = product(B, Z, transpose_b=True)  # Z b_t
        rest = u - (H * common[:, None, :]).sum(axis=2)  # z_t / sqrt(v_t)
        penalty = (Z**2).sum() + (v[:, None] * rest**2).sum()
        mean = common + v[:, None] * rest
        return cls(own, half[:, :, -1], shared, whitened, mean, penalty)


@dataclass(frozen=True, eq=False)
class TaskNormal(StructuredNormal):
    r"""Multivariate normal with ``cov(y_i, y_j) = a_i' a_j (b_t' b_t' + v_t [t = t']) + D_i [i = j]``.

    .. math::

        -2 \log p = \sum_i \frac{(y_i - \mu_i - a_i^\top c_t)^2}{D_i} + \|Z\|^2 + \sum_t \|z_t\|^2
        + \sum_i \log D_i + \sum_t \log|I + v_t G_t| + \log|M| + n \log 2\pi

    at the posterior mean of the coefficients (:class:`TaskPosterior`): a sum of squares, without the
    cancellation of the usual quadratic form.

    Parameters
    ----------
    mean : tensor, shape (n,)
        Mean.
    variance : tensor, shape (n,)
        Diagonal D, positive.
    A : tensor, shape (n, a)
        Root of the kernel between rows.
    task : integer tensor, shape (n,)
        Task of each row, 0 to s - 1.
    B : tensor, shape (s, q)
        Factor of what the tasks share.
    v : tensor, shape (s,)
        Variances of the tasks' own functions, not negative.
    penalty : tensor, scalar
        Taken off ``logp``: the trace term of the bound that "VFE" maximises.

    Notes
    -----
    A density with its gradient costs O(n a^2 + s a^3 + s a^2 q^2 + (a q)^3), and memory
    O(n a + s (a^2 + q^2) + (a q)^2). A matrix that is not positive definite gives ``logp = nan``.
    """

    variance: TensorVariable
    A: TensorVariable
    task: TensorVariable
    B: TensorVariable
    v: TensorVariable
    penalty: TensorVariable

    def draw(self, rng, size):
        A, B, s = self.A, self.B, self.v.shape[0]
        shapes = [(self.mean.shape[0],), (A.shape[1], B.shape[1]), (s, A.shape[1])]
        next_rng, (e, Z, own) = white(rng, size, *shapes)
        coef = B @ Z.swapaxes(-1, -2) + pt.sqrt(self.v)[:, None] * own  # (..., s, a)
        rows = (A * coef[..., self.task, :]).sum(axis=-1)
        return next_rng, self.mean + pt.sqrt(self.variance) * e + rows

    def posterior(self, value) -> TaskPosterior:
        """Posterior of the coefficients."""
        return TaskPosterior.of(value - self.mean, self.variance, self.A, self.task, self.B, self.v)

    def logp(self, value):
        found = self.posterior(value)
        fitted = segment_times(found.mean[:, None, :], self.A, self.task)[:, 0]
        own = pt.log(pt.diagonal(found.own, axis1=1, axis2=2)).sum()
        logdet = pt.log(self.variance).sum() + 2.0 * (pt.log(pt.diag(found.shared)).sum() - own)
        quadratic = ((value - self.mean - fitted) ** 2 / self.variance).sum() + found.penalty
        return -0.5 * (quadratic + logdet + value.shape[0] * np.log(2.0 * np.pi)) - self.penalty
