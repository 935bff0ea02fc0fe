"""SKIP's Gaussian likelihood task by task, and predictions from it."""

from dataclasses import dataclass
from functools import cached_property

import pytensor.tensor as pt

from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.likelihoods.base import Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.precision import LowRankPrecisions
from pymc_scalable_gp.methods.skip.features import SKIPMap
from pymc_scalable_gp.methods.skip.task_normal import TaskNormal, TaskPosterior
from pymc_scalable_gp.ops.segments import segment_times
from pymc_scalable_gp.ops.stacked_solve import lower_solve


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
        target, noise = self.handed(None, None)
        return self.normal(noise).posterior(target)

    def coefficients(self, target=None, noise=None) -> Coefficients:
        """Coefficients of :class:`TaskMap`: independent, with variance one."""
        target, noise = self.handed(target, noise)
        found, v = self.normal(noise).posterior(target), self.data.feature_map.task_variances
        own = (pt.sqrt(v)[:, None] * found.projected).ravel()
        rank = self.prediction_map().rank
        return Coefficients(pt.concatenate([found.whitened, own]), pt.ones(rank))

    def missed(self, X, phi):
        """Prior variances that the tree's features miss; `phi` are the posterior's."""
        return self.prediction_map().missed(X, phi)

    def precisions(self, model):
        """From the prediction's features: the posterior variance of each row is their squared length."""
        return LowRankPrecisions(self, model)

    def prediction_map(self):
        """Features in which the posterior's coefficients are independent."""
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
        """Features (n, a (q + s))."""
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
        """Prior variances that the tree's features miss; `phi` are the posterior's."""
        return self.base.missed_by(X, self.base.data_root(X))

    def outside(self, X):
        return self.base.outside(X)
