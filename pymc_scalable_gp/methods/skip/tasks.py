"""SKIP's Gaussian likelihood task by task, and predictions from it."""

from dataclasses import dataclass
from functools import cached_property

import pytensor.tensor as pt
from pytensor.tensor.linalg import solve_triangular

from pymc_scalable_gp.core.coefficients import Coefficients
from pymc_scalable_gp.core.conditioned import MarginalFit
from pymc_scalable_gp.core.features import FeatureMap
from pymc_scalable_gp.methods.skip.task_normal import TaskNormal, TaskPosterior
from pymc_scalable_gp.ops.segments import segment_times


@dataclass(frozen=True)
class TaskFit(MarginalFit):
    """A marginal fit of several tasks whose likelihood is summed over tasks, not over features."""

    @cached_property
    def _parts(self):
        """Root A, tasks, D, and what the bound of "VFE" takes off."""
        X, feature_map = self.X.tensor, self.gp._map
        A, task = feature_map.data_root(X), feature_map.task_index(X)
        A = pt.specify_shape(A, (self.X.value.shape[0], None))
        return A, task, *self.corrected(feature_map.missed_by(X, A))

    def observe(self, name, observed, **kwargs):
        """The observed random variable."""
        A, task, variance, penalty = self._parts
        B, v = self.gp._map.task_cov, self.gp._map.task_variances
        mu = self.gp.mean_func(self.X.tensor)
        return TaskNormal(
            name, mu, variance, A, task, B, v, penalty=penalty, observed=observed, **kwargs
        )

    @cached_property
    def posterior(self) -> TaskPosterior:
        """Posterior of the shared and of the tasks' own coefficients."""
        A, task, variance, _ = self._parts
        residual = self.y.tensor - self.gp.mean_func(self.X.tensor)
        B, v = self.gp._map.task_cov, self.gp._map.task_variances
        return TaskPosterior.of(residual, variance, A, task, B, v)

    def coefficients(self) -> Coefficients:
        """Coefficients of :class:`TaskMap`: independent, with variance one."""
        found, v = self.posterior, self.gp._map.task_variances
        own = (pt.sqrt(v)[:, None] * found.projected).ravel()
        return Coefficients(pt.concatenate([found.whitened, own]), pt.ones(TaskMap(self).rank))


class TaskMap(FeatureMap):
    r"""Features in which the posterior of :class:`TaskFit` has independent coefficients.

    Those that all tasks share, ``S^{-1} ((I + v_t G_t)^{-1} a_i (x) b_t)`` with ``S S' = M``, then for
    each task, zero at the rows of others, ``sqrt(v_t) L_t^{-1} a_i``.
    """

    def __init__(self, fit: TaskFit):
        self.base, self.posterior = fit.gp._map, fit.posterior
        own = self.posterior.own
        self.smaller = own.transpose((0, 2, 1)) @ own  # (I + v G)^-1

        self.tasks, self.width = self.base.task_cov.type.shape
        self.columns = own.type.shape[1]

    is_fitted = property(lambda self: True)
    rank = property(lambda self: self.columns * (self.width + self.tasks))
    block_rows = property(lambda self: self.base.block_rows)

    def fit_to(self, X):
        """Nothing to fit."""

    def features(self, X):
        """Features (n, a (q + s))."""
        base, task = self.base, self.base.task_index(X)
        A, B, v = base.data_root(X), base.task_cov, base.task_variances
        s, q, a = self.tasks, self.width, self.columns
        shrunk = segment_times(self.smaller, A, task)
        rows = (shrunk[:, :, None] * B[task][:, None, :]).reshape((X.shape[0], a * q))
        shared = solve_triangular(self.posterior.shared, rows.T, lower=True).T
        own = pt.sqrt(v)[task][:, None] * segment_times(self.posterior.own, A, task)
        hot = pt.eq(task[:, None], pt.arange(s))
        own = (hot[:, :, None] * own[:, None, :]).reshape((X.shape[0], s * a))
        return pt.concatenate([shared, own], axis=1)

    def intermediates(self):
        """Factors of the posterior, and the tree's own."""
        found = self.posterior
        return [found.own, self.smaller, found.shared, *self.base.intermediates()]

    def kernel_diag(self, X):
        """Prior variances."""
        return self.base.kernel_diag(X)

    def missed(self, X, phi):
        """Prior variances that the tree's features miss; `phi` holds the posterior's."""
        return self.base.missed_by(X, self.base.data_root(X))

    def outside(self, X):
        """As the tree's."""
        return self.base.outside(X)
