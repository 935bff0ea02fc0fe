"""Likelihood of features and what they miss, the latter in the sparse form of block Vecchia."""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.draws import mean_point
from pymc_scalable_gp.core.data.inputs import Data
from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.features.residual import Regressions, fused_kernel, regressions
from pymc_scalable_gp.core.likelihoods.base import Likelihood, MarginalData, TrainingRows
from pymc_scalable_gp.core.vecchia.neighbors import Metric, Ordering, changed_share, order_rows
from pymc_scalable_gp.core.vecchia.normal import RegressedNormal, StationaryNormal, whitened_terms
from pymc_scalable_gp.core.vecchia.parts import PartsMap
from pymc_scalable_gp.core.vecchia.precision import VecchiaPrecisions
from pymc_scalable_gp.core.vecchia.predictor import VecchiaPredictor, joint_conditional
from pymc_scalable_gp.cov.queries import kept_matrix
from pymc_scalable_gp.ops.lowrank_posterior import lowrank_posterior
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.ops.vecchia_color import vecchia_color
from pymc_scalable_gp.utils.checks import Refuse, check_count
from pymc_scalable_gp.utils.compiled import as_point, compiled
from pymc_scalable_gp.utils.graphs import data_shared, is_random, same_values
from pymc_scalable_gp.utils.jitter import LOOSE_JITTER


@dataclass(frozen=True)
class VecchiaSettings:
    """Rows that a block is conditioned on, rows of a block, rows that a new row is conditioned on."""

    neighbors: int
    block: int
    pred_neighbors: int

    @classmethod
    def checked(cls, neighbors, block, pred_neighbors=None) -> "VecchiaSettings":
        """Settings from a user's arguments. New rows get twice the neighbours by default."""
        neighbors, block = check_count("neighbors", neighbors, 0), check_count("block", block)
        if pred_neighbors is None:
            return cls(neighbors, block, 2 * neighbors)
        return cls(neighbors, block, check_count("pred_neighbors", pred_neighbors, 0))

    def order(self, cov_func, X, point=None, progressbar=True) -> Ordering:
        """An ordering of the rows X (n, d), by the kernel at a point of the model."""
        single = self.block >= len(X) and not (self.neighbors or self.pred_neighbors)
        return self.order_by(None if single else Metric(cov_func, X, point), X, progressbar)

    def order_by(self, metric: Metric | None, X, progressbar=False) -> Ordering:
        """An ordering by a given metric."""
        return order_rows(
            X, metric, self.block, self.neighbors, self.pred_neighbors, progressbar=progressbar
        )


class RowPlan:
    """Order and neighbours as shared variables: a model goes on with others after :meth:`replace`."""

    def __init__(self, ordering: Ordering, X: np.ndarray):
        self.ordering, self._places = ordering, []
        self.point: dict = {}  # for which the ordering replaced the likelihood's own; empty where none did
        self.order = data_shared(ordering.order)
        self.neighbors = data_shared(ordering.neighbors)
        self.X = data_shared(X.copy())  # what X is compared with must not change with it

    def replace(self, ordering: Ordering, X: np.ndarray, point: dict) -> None:
        """Go on with another ordering of as many rows, that of a `point`."""
        self.ordering, self.point = ordering, point
        self.order.set_value(ordering.order)
        self.neighbors.set_value(ordering.neighbors)
        self.X.set_value(X)
        for near, new in self._places:
            near.set_value(ordering.nearest_jointly(new))

    def nearest_jointly(self, X: np.ndarray) -> TensorVariable:
        """Places (n*, k) of what new rows X are given, of the present ordering."""
        near = data_shared(self.ordering.nearest_jointly(X))
        self._places.append((near, X))
        return near


class NeighborRows(TrainingRows):
    """Training rows in blocks with neighbours, under a likelihood of any kind.

    A kind has the inputs `X`, the `feature_map`, `cov_func`, `settings`, `plan`, and the `residual`.
    """

    holds_residual = True
    cov_func: Any
    settings: VecchiaSettings
    plan: RowPlan

    @property
    @abstractmethod
    def residual(self) -> TensorVariable:
        """Values less their prior mean (n,), in the order of the blocks."""

    @property
    @abstractmethod
    def noise(self) -> TensorVariable:
        """Variances (n,) beside the kernel's, in the order of the blocks."""

    @cached_property
    def order(self) -> TensorVariable:
        """Rows in the order of the blocks (n,); refused where the inputs are not those of the plan."""
        X = self.X.tensor
        if not self.X.mutable or is_random(X):
            return self.plan.order
        return Refuse(
            "X was replaced, and order and neighbors are those of the rows before: call "
            "gp.rebuild() for as many rows as before, build the model again for another number, "
            "or use gp.conditional or gp.predict for new inputs"
        )(self.plan.order, same_values(X, self.plan.X))

    @cached_property
    def inputs(self) -> TensorVariable:
        """Inputs (n, d), in the order of the blocks."""
        return self.X.tensor[self.order]

    @cached_property
    def phi(self) -> TensorVariable:
        """Features (n, r), in the order of the blocks."""
        return self.feature_map.features(self.inputs)

    def regressed(self, noise) -> Regressions:
        """Regressions of the blocks on their neighbours, with variances (n,) in the order of the blocks."""
        return regressions(
            self.cov_func, self.inputs, self.phi, noise, self.plan.neighbors,
            self.plan.ordering.block,
        )  # fmt: skip

    @cached_property
    def regressions(self) -> Regressions:
        """Regressions with the likelihood's own noise."""
        return self.regressed(self.noise)

    def of_parts(self, parts: Sequence, places: Sequence[int]):
        """A map that tells the parts; their coefficients go with those of the others, as residuals do."""
        total = self.prediction_map()
        if len(places) < len(parts):
            total = PartsMap(total, [part.cov_func for part in parts], places)
        return total, self.coefficients()

    def predictor(self, feature_map, mean_func, coef, noise, model):
        """Features and neighbours together."""
        return VecchiaPredictor(self, feature_map, mean_func, coef, noise, model)

    def conditional(self, name, data, feature_map, mean_func, coef, variance, **kwargs):
        """A `VecchiaNormal`: new rows are given their neighbours, new ones among them."""
        return joint_conditional(self, name, data, feature_map, mean_func, coef, variance, **kwargs)

    def present_inputs(self) -> np.ndarray:
        """Present value of X (n, d)."""
        X = self.X
        return X.value if is_random(X.tensor) or not X.mutable else compiled([], X.tensor)()

    def reorder(self, point=None) -> None:
        """Take order and neighbours of the rows from the hyperparameters at a point."""
        if kept := kept_matrix(self.cov_func):
            raise ValueError(
                f"{kept} is computed once, in the order that the rows had then: to choose it again, call "
                "build(X, point=...) and write the model again"
            )
        X = self.present_inputs()
        if len(X) != len(self.plan.ordering.order):
            raise ValueError(
                f"X has {len(X)} rows, but the model was written with {len(self.plan.ordering.order)}: "
                "write it again"
            )
        point = as_point(point)
        self.plan.replace(self.settings.order(self.cov_func, X, point), X, point)

    def figures(self, points, model=None):
        """``neighbors_moved``: share of neighbours that the point's hyperparameters would replace."""
        if self.plan.ordering.metric is None:
            return {}
        X = self.present_inputs()
        with model or nullcontext():
            metric = Metric(self.cov_func, X, mean_point(points))
        return {"neighbors_moved": changed_share(self.plan.ordering, X, metric)}


@dataclass(frozen=True, eq=False)
class VecchiaRows(NeighborRows, Likelihood):
    """Gaussian likelihood: features, and regressions on neighbours for the rest."""

    data: MarginalData
    cov_func: Any
    settings: VecchiaSettings
    plan: RowPlan

    path = "vecchia"

    @classmethod
    def of(cls, data, cov_func, settings, point=None, progressbar=True) -> "VecchiaRows":
        """With order and neighbours chosen at a point of the model."""
        data = replace(data, feature_map=data.feature_map.for_residual())
        ordering = settings.order(cov_func, data.X.value, point, progressbar)
        return cls(data, cov_func, settings, RowPlan(ordering, data.X.value))

    @property
    def feature_map(self):
        """The features of the likelihood."""
        return self.data.feature_map

    @cached_property
    def noise(self):
        """Noise variances."""
        return self._placed(self.data.sigma**2)

    def _placed(self, noise):
        """Noise variances, a scalar or (n,), in the order of the blocks."""
        ones = pt.ones(self.inputs.shape[0])
        return (noise if noise.ndim == 0 else noise[self.order]) * ones

    @cached_property
    def residual(self):
        """Targets less their mean."""
        return self.data.residual[self.order]

    def normal(self, noise):
        """Low rank plus block Vecchia."""
        noise, kernel = self._placed(noise), fused_kernel(self.cov_func, self.inputs)
        common = self.data.mean, self.phi, self.plan.neighbors, self.order
        if kernel is not None:
            return StationaryNormal(*common, noise, kernel, self.plan.ordering.block)
        found = self.regressed(noise)
        return RegressedNormal(*common, found.A, found.L)

    def coefficients(self, target=None, noise=None):
        """Posterior from the same terms as the density."""
        target, noise = self.handed(target, noise)
        residual = (target - self.data.mean)[self.order]
        residual, phi = whitened_terms(residual, self.phi, self.regressed(self._placed(noise)))
        found = lowrank_posterior(phi, pt.constant(1.0), residual)
        return Coefficients(found.coef, found.root)

    def precisions(self, model):
        """Sparse, and low rank."""
        return VecchiaPrecisions(self, model)

    def given(self, X: Data, y: Data, sigma: TensorVariable):
        """The same likelihood of other data, with neighbours chosen among those."""
        plan = RowPlan(self.settings.order_by(self.plan.ordering.metric, X.value), X.value)
        return replace(self, data=self.data.with_rows(X, y, sigma), plan=plan)


@dataclass(frozen=True, eq=False)
class VecchiaFunction(NeighborRows):
    """A latent function: features' coefficients and white residuals are random variables."""

    feature_map: FeatureMap
    X: Data
    cov_func: Any
    settings: VecchiaSettings
    plan: RowPlan
    coef: TensorVariable
    white: TensorVariable

    sigma = None

    @cached_property
    def noise(self):
        """A share of the prior variance, so that blocks can be factorised."""
        prior = self.feature_map.kernel_diag(self.inputs)
        return LOOSE_JITTER * pt.switch(prior > 0, prior, prior.max())

    @cached_property
    def residual(self):
        """``Phi z + u``, with u the rows that the white ones make by the regressions."""
        return product(self.phi, self.coef) + vecchia_color(self.white[:, None], *self.regressions)[:, 0]

    def values(self) -> TensorVariable:
        """The function less its mean (n,), in the order of X."""
        return self.residual[pt.argsort(self.order)]

    def coefficients(self):
        """Coefficients, known exactly at each draw."""
        return Coefficients(self.coef, None)

    def prediction_map(self):
        """The features of the prior."""
        return self.feature_map
