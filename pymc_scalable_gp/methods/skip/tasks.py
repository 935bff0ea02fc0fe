"""Many tasks that share a low-rank kernel, task by task: normal vectors, likelihood and predictions."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.likelihoods.base import Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal, white
from pymc_scalable_gp.methods.skip.features import SKIPMap
from pymc_scalable_gp.ops.segments import segment_gram, segment_times
from pymc_scalable_gp.ops.stacked_cholesky import cholesky, stacked_cholesky
from pymc_scalable_gp.ops.stacked_product import product, stacked_product
from pymc_scalable_gp.ops.stacked_solve import lower_solve, stacked_solve


class TaskPosterior(NamedTuple):
    r"""``f_i = a_i' (Z b_t + sqrt(v_t) z_t)`` given ``y_i = f_i + e_i``, with t the task of row i.

    With ``G_t = sum_i a_i a_i' / D_i`` and ``h_t = sum_i a_i y_i / D_i`` over a task's rows nothing of size
    n is left. The tasks' own coefficients are integrated out first, by ``L_t L_t' = I + v_t G_t``, the
    shared ones second: ``M vec(Z) = sum_t (I + v_t G_t)^-1 h_t (x) b_t``, ``M = I + sum_t (I + v_t G_t)^-1
    G_t (x) b_t b_t'``. For k vectors of targets at once.
    """

    own: TensorVariable  # L_t^-1 (s, a, a)
    projected: TensorVariable  # L_t^-1 h_t (s, a, k)
    shared: TensorVariable  # Cholesky factor of M (a q, a q)
    whitened: TensorVariable  # its inverse times M's right-hand sides (a q, k)
    fitted: TensorVariable  # posterior mean of f (n, k)
    penalty: TensorVariable  # squared length (k,) of the standard normal coefficients at their mean

    @classmethod
    def of(cls, residuals, variance, A, task, B, v):
        """From residuals (n, k), D (n,), A (n, a), task (n,), factors B (s, q) and variances v (s,)."""
        (s, q), a, k = B.type.shape, A.type.shape[1], residuals.shape[1]
        weighted = pt.concatenate([A, residuals], axis=1) / variance[:, None]
        both = segment_gram(A, weighted, task, s)  # G_t beside h_t
        eye = pt.eye(a)
        L = stacked_cholesky(eye + v[:, None, None] * both[:, :, :a])
        own = stacked_solve(L, pt.broadcast_to(eye, (s, a, a)))
        half = stacked_product(own, both)
        shrunk = stacked_product(own, half, transpose_a=True)  # (I + v G)^-1 [G, h]
        H, u = shrunk[:, :, :a], shrunk[:, :, a:]
        pairs = (B[:, :, None] * B[:, None, :]).reshape((s, q * q))
        M = product(H.reshape((s, a * a)), pairs, transpose_a=True).reshape((a, a, q, q))
        M = pt.eye(a * q) + M.transpose((0, 2, 1, 3)).reshape((a * q, a * q))
        shared = cholesky(M)
        right = product(u.reshape((s, a * k)), B, transpose_a=True).reshape((a, k, q))
        whitened = lower_solve(shared, right.transpose((0, 2, 1)).reshape((a * q, k)))
        Z = lower_solve(shared, whitened, transpose=True).reshape((a, q, k))
        common = product(B, Z.transpose((1, 0, 2)).reshape((q, a * k))).reshape((s, a, k))  # Z b_t
        rest = u - stacked_product(H, common)  # z_t / sqrt(v_t)
        penalty = (Z**2).sum(axis=(0, 1)) + (v[:, None, None] * rest**2).sum(axis=(0, 1))
        mean = common + v[:, None, None] * rest
        fitted = segment_times(mean.transpose((0, 2, 1)), A, task)
        return cls(own, half[:, :, a:], shared, whitened, fitted, penalty)


@dataclass(frozen=True, eq=False)
class TaskNormal(StructuredNormal):
    r"""Multivariate normal with ``cov(y_i, y_j) = a_i' a_j (b_t' b_t' + v_t [t = t']) + D_i [i = j]``.

    The quadratic form is ``sum_i (y_i - mu_i - a_i' c_t)^2 / D_i + |Z|^2 + sum_t |z_t|^2`` at the posterior
    mean of the coefficients (`TaskPosterior`), a sum of squares, which does not cancel; the log determinant
    ``sum_i log D_i + sum_t log |I + v_t G_t| + log |M|``. O(n a^2 + s a^3 + s a^2 q^2 + (a q)^3), memory
    O(n a + s (a^2 + q^2) + (a q)^2). A matrix that is not positive definite gives NaN.
    """

    variance: TensorVariable  # diagonal D (n,), positive
    A: TensorVariable  # root (n, a) of the kernel between rows
    task: TensorVariable  # task (n,) of each row, 0 to s - 1
    B: TensorVariable  # factor (s, q) of what the tasks share
    v: TensorVariable  # variances (s,) of the tasks' own functions, not negative
    penalty: TensorVariable  # taken off logp: the trace term of the bound that "VFE" maximises

    def draw(self, rng, size):
        A, B, s = self.A, self.B, self.v.shape[0]
        shapes = [(self.mean.shape[0],), (A.shape[1], B.shape[1]), (s, A.shape[1])]
        next_rng, (e, Z, own) = white(rng, size, *shapes)
        coef = B @ Z.swapaxes(-1, -2) + pt.sqrt(self.v)[:, None] * own  # (..., s, a)
        rows = (A * coef[..., self.task, :]).sum(axis=-1)
        return next_rng, self.mean + pt.sqrt(self.variance) * e + rows

    def posterior(self, values) -> TaskPosterior:
        """Given k vectors (n, k), less the mean."""
        return TaskPosterior.of(values, self.variance, self.A, self.task, self.B, self.v)

    def solve(self, values):
        return (values - self.posterior(values).fitted) / self.variance[:, None]

    def logp(self, value):
        residual = value - self.mean
        found = self.posterior(residual[:, None])
        own = pt.log(pt.diagonal(found.own, axis1=1, axis2=2)).sum()
        logdet = pt.log(self.variance).sum() + 2.0 * (pt.log(pt.diag(found.shared)).sum() - own)
        quadratic = ((residual - found.fitted[:, 0]) ** 2 / self.variance).sum() + found.penalty[0]
        return -0.5 * (quadratic + logdet + value.shape[0] * np.log(2.0 * np.pi)) - self.penalty


@dataclass(frozen=True, eq=False)
class ByTask(Likelihood):
    """Several tasks, whose likelihood is summed over tasks, not over features."""

    data: MarginalData

    path = "tasks"
    subsets_share_features = False

    def normal(self, noise):
        data, X, feature_map = self.data, self.data.X.tensor, self.data.feature_map
        A, task = feature_map.data_root(X), feature_map.task_index(X)
        A = pt.specify_shape(A, (data.size, None))
        variance, penalty = data.corrected(feature_map.missed_by(X, A), noise)
        B, v = feature_map.task_cov, feature_map.task_variances
        mean = data.mean * pt.ones_like(variance)  # of known length: a zero mean costs nothing
        return TaskNormal(mean, variance, A, task, B, v, penalty)

    @cached_property
    def posterior(self) -> TaskPosterior:
        """Posterior of the shared and of the tasks' own coefficients."""
        return self._posterior(*self.handed(None, None))

    def _posterior(self, target, noise) -> TaskPosterior:
        normal = self.normal(noise)
        return normal.posterior((target - normal.mean)[:, None])

    def coefficients(self, target=None, noise=None) -> Coefficients:
        """Coefficients of :class:`TaskMap`: independent, with variance one."""
        found, v = self._posterior(*self.handed(target, noise)), self.data.feature_map.task_variances
        own = (pt.sqrt(v)[:, None] * found.projected[:, :, 0]).ravel()
        rank = self.prediction_map().rank
        return Coefficients(pt.concatenate([found.whitened[:, 0], own]), pt.ones(rank))

    def variance(self):
        return self.normal(self.data.sigma**2).variance

    def prediction_map(self):
        return TaskMap(self.data.feature_map, self.posterior)


class TaskMap(FeatureMap):
    r"""Features in which the posterior of :class:`ByTask` has independent coefficients.

    First the shared ones, ``S^{-1} ((I + v_t G_t)^{-1} a_i (x) b_t)`` with ``S S' = M``; then those of each
    task, ``sqrt(v_t) L_t^{-1} a_i`` at its own rows and zero at those of others.
    """

    def __init__(self, base: SKIPMap, posterior: TaskPosterior):
        self.base, self.posterior = base, posterior
        own = self.posterior.own
        self.smaller = own.transpose((0, 2, 1)) @ own  # (I + v G)^-1

        self.tasks, self.width = self.base.task_cov.type.shape
        self.columns = own.type.shape[1]

    rank = property(lambda self: self.columns * (self.width + self.tasks))

    def features(self, X):
        base, task = self.base, self.base.task_index(X)
        A, B, v = base.data_root(X), base.task_cov, base.task_variances
        s, q, a = self.tasks, self.width, self.columns
        shrunk = segment_times(self.smaller, A, task)
        rows = (shrunk[:, :, None] * B[task][:, None, :]).reshape((X.shape[0], a * q))
        shared = lower_solve(self.posterior.shared, rows.T).T
        own = pt.sqrt(v)[task][:, None] * segment_times(self.posterior.own, A, task)
        hot = pt.eq(task[:, None], pt.arange(s))
        own = (hot[:, :, None] * own[:, None, :]).reshape((X.shape[0], s * a))
        return pt.concatenate([shared, own], axis=1)

    def intermediates(self):
        found = self.posterior
        return [found.own, self.smaller, found.shared, *self.base.intermediates()]

    def kernel_diag(self, X):
        return self.base.kernel_diag(X)

    def missed(self, X, phi):
        """Prior variances that the tree's features leave unexplained; `phi` are the posterior's."""
        return self.base.missed_by(X, self.base.data_root(X))

    def outside(self, X):
        return self.base.outside(X)
