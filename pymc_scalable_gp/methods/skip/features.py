"""SKIP's feature map: the last two roots of one tree for each term of the kernel."""

from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance, Coregion
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.features.feature_map import FeatureMap, side_by_side
from pymc_scalable_gp.core.features.reach import InputRange
from pymc_scalable_gp.cov.kernels import kernel_diag
from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.cov.queries import check_labels, leaves, used_columns, warn_unused_columns
from pymc_scalable_gp.methods.skip.tree import OwnRoots, Roots, TermTree
from pymc_scalable_gp.utils.checks import Refuse, check_count
from pymc_scalable_gp.utils.compiled import present_shape
from pymc_scalable_gp.utils.graphs import depends_only_on
from pymc_scalable_gp.utils.warn import warn

MANY_INPUTS = 40  # whose compilation is no matter of minutes


class Tasks(NamedTuple):
    """The column that holds the task, the factor B of the tasks' covariance, and their own variances v."""

    dim: int
    cov: TensorVariable
    var: TensorVariable | None

    def times(self, cov_func: BaseCovariance) -> BaseCovariance:
        """A kernel times the tasks' covariance ``B B' + diag(v)``."""
        v = np.zeros(self.cov.type.shape[0]) if self.var is None else self.var
        own = Coregion(cov_func.input_dim, W=self.cov, kappa=v, active_dims=[self.dim])
        return cov_func * own


def check_product(cov_func, grid_size, rank) -> None:
    """Raise TypeError or ValueError for a kernel that is not a product of 1-D kernels, or bad counts."""
    if any(isinstance(leaf, Coregion) for leaf in leaves(cov_func)):
        raise ValueError(
            "cov_func contains Coregion: give the task's column as task_dim=, W as task_cov= and "
            "kappa as task_var="
        )
    check_count("grid_size", grid_size, 6)
    check_count("rank", rank)
    if rank > grid_size:
        raise ValueError(f"rank={rank} exceeds grid_size={grid_size}: raise the grid's size")


def checked_tasks(task_dim, task_cov, task_var) -> Tasks | None:
    """Tasks from a user's arguments, if any; TypeError or ValueError for those that do not go together."""
    if (task_dim is None) != (task_cov is None):
        raise ValueError("task_dim and task_cov go together: give both or neither")
    if task_dim is None:
        if task_var is not None:
            raise ValueError("task_var goes with task_dim and task_cov: give all three")
        return None
    if isinstance(task_dim, bool) or not isinstance(task_dim, int | np.integer):
        raise TypeError(f"task_dim must be the index of a column, got {task_dim!r}")
    factor = pt.as_tensor_variable(task_cov).astype("float64")
    shape = present_shape(factor)
    if len(shape) != 2 or shape[1] is None:
        raise ValueError(
            "task_cov must be a factor B (tasks, q) with a known number of columns, B B' being the "
            f"tasks' covariance; got shape {shape}"
        )
    factor = pt.specify_shape(factor, shape)
    if task_var is None:
        return Tasks(task_dim, factor, None)
    variances = pt.as_tensor_variable(task_var).astype("float64")
    count, own = shape[0], present_shape(variances)
    if count is None or own != (count,):
        raise ValueError(
            "task_var must hold one variance per task, shape (tasks,), known and equal to task_cov's "
            f"rows; got {own}, and {count} rows"
        )
    variances = pt.specify_shape(variances, own)
    if isinstance(variances, Constant) and not (variances.data >= 0.0).all():
        raise ValueError("task_var must not be negative")
    return Tasks(task_dim, factor, variances)


class SKIPMap(FeatureMap):
    """Features ``A # B`` from the last two roots of the tree of each product term."""

    projected = False

    def __init__(self, cov_func, X: np.ndarray, grid_size, rank, tasks: Tasks | None, point=None):
        self.cov_func, self.terms = cov_func, product_terms(cov_func)
        self.task_dim, self.task_cov, self.task_var = tasks or (None, None, None)
        self.columns, self.point = X.shape[1], point
        used = used_columns(self.cov_func, self.columns)
        if len(used) > MANY_INPUTS:
            warn(
                f"SKIP compiles a step for each of {len(used)} inputs, which may take minutes: "
                "sgp.VecchiaMarginal and sgp.SoftKIMarginal take hundreds"
            )
        if self.task_dim is not None:
            self._check_tasks(X, used)
        warn_unused_columns(self.cov_func, self.columns, () if self.task_dim is None else (self.task_dim,))
        for term in self.terms:
            if not term.dims:
                raise ValueError("cov_func has a constant term: give it as an intercept instead")
        single = self.task_dim is not None
        self.trees = [TermTree(term, X, grid_size, rank, single, point) for term in self.terms]
        self._rank = sum(roots.rank for roots in self.roots(pt.constant(X[:1])))

    @property
    def rank(self):
        return self._rank

    def _check_tasks(self, X, used):
        if not -self.columns <= self.task_dim < self.columns:
            raise ValueError(f"task_dim={self.task_dim}, but X has {self.columns} columns")
        self.task_dim %= self.columns
        if self.task_dim in used:
            raise ValueError(
                f"cov_func uses column {self.task_dim}, the task: give the kernel active_dims without it"
            )
        present = self.check_task_column(X, "X")
        count = self.task_count
        missing = sorted(set(range(count or 0)) - set(present.tolist()))
        if missing:
            warn(
                f"{len(missing)} tasks have no rows (task {missing[0]}{', ...' * (len(missing) > 1)}): "
                "what they do is inferred from the others through task_cov alone"
            )

    def check_task_column(self, X, name):
        """Distinct tasks of X, or an error that names the first bad row."""
        check_labels(X, self.task_dim, self.task_count, name, "task", "task_cov")
        return np.unique(X[:, self.task_dim]).astype(int)

    def roots(self, X) -> list[Roots]:
        """The last two roots of each term; with tasks, the shared ones and each task's own."""
        if self.task_dim is None:
            return [tree.roots(X, self.projected) for tree in self.trees]
        A, task = self.data_root(X), self.task_index(X)
        shared = Roots(A, self.task_cov[task])
        if self.task_var is None:
            return [shared]
        return [shared, OwnRoots(A, pt.sqrt(self.task_var)[task], task, self.task_count)]

    def data_root(self, X):
        """Root (n, a) of the kernel without its tasks: the terms' roots side by side."""
        parts = [tree.roots(X).A for tree in self.trees]
        return parts[0] if len(parts) == 1 else pt.concatenate(parts, axis=1)

    def task_index(self, X):
        """Task of each row (n,); where X may be replaced or is new, there has to be such a task."""
        task = X[:, self.task_dim]
        if not depends_only_on([X]):
            good = pt.eq(task, pt.floor(task)) & (task >= 0)
            good = good if self.task_count is None else good & (task < self.task_count)
            words = (
                f"tasks, column {self.task_dim}, are whole numbers from 0 below task_cov's number of rows"
            )
            task = Refuse(words)(task, good.all())
        return task.astype("int64")

    @property
    def task_count(self) -> int | None:
        """Number of tasks, where the factor's shape is known."""
        return self.task_cov.type.shape[0]

    @property
    def task_variances(self):
        """Variances (s,) of the tasks' own functions."""
        return pt.zeros(self.task_count) if self.task_var is None else self.task_var

    def features(self, X):
        return side_by_side([roots.features() for roots in self.roots(X)])

    def times(self, X, coef, hold):
        """``features @ coef`` (n,), without forming the features."""
        out, start = 0.0, 0
        for found in self.roots(X):
            parts = [hold(part) if isinstance(part, Variable) else part for part in found]
            roots = type(found)(*parts)
            out = out + roots.times(coef[start : start + roots.rank])
            start += roots.rank
        return out

    @property
    def input_range(self):
        low, high = np.full(self.columns, -np.inf), np.full(self.columns, np.inf)
        labels = {}
        for tree in self.trees:
            labels |= tree.labels()
            for dim, ends in tree.ends().items():
                low[dim], high[dim] = ends
        return InputRange(low, high, labels=labels)

    def intermediates(self):
        return [tensor for tree in self.trees for tensor in tree.intermediates()]

    def kernel_diag(self, X):
        diag = kernel_diag(self.cov_func, X)
        return diag if self.task_dim is None else diag * self._task_scale(X)

    def missed_by(self, X, A):
        """Prior variances (n,) that a root A of the kernel without its tasks misses at X."""
        diag = kernel_diag(self.cov_func, X)
        return pt.maximum(diag - (A**2).sum(axis=1), 0.0) * self._task_scale(X)

    def _task_scale(self, X):
        """``b_t' b_t + v_t`` (n,)."""
        scale = (self.task_cov**2).sum(axis=1)
        return (scale if self.task_var is None else scale + self.task_var)[self.task_index(X)]

    def for_residual(self):
        """With 1-D kernels projected on the nodes of the grids: interpolation can exceed the kernel."""
        return self.changed(projected=True)

    def outside(self, X):
        """How far X lies beyond the grids, in words; None for projected kernels, which do not end there."""
        if self.task_dim is not None:
            self.check_task_column(X, "Xnew")
        found = {}
        for tree in self.trees:
            found |= tree.outside(X)
        return None if self.projected else "; ".join(found.values()) or None
