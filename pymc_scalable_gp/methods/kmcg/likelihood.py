"""KMCG's Gaussian likelihood: in the coordinates of its basis, or of its features."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_scalable_gp.core.data.inputs import held_value
from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.likelihoods.base import FullRows, Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.exact import ExactRows
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.methods.kmcg.basis import KrylovBasis
from pymc_scalable_gp.methods.kmcg.eigenspaces import in_eigenspaces
from pymc_scalable_gp.methods.kmcg.features import KMCGMap
from pymc_scalable_gp.methods.kmcg.kronecker import KroneckerRows, NoFeatures, has_eigenbasis
from pymc_scalable_gp.methods.kmcg.krylov_normal import KrylovNormal
from pymc_scalable_gp.methods.kmcg.logdet import ProbedLogdet
from pymc_scalable_gp.methods.kmcg.predict import PART_AT_CELLS, GridPredictor, RowsPredictor
from pymc_scalable_gp.ops.lowrank_posterior import lowrank_posterior
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.jitter import KERNEL_JITTER

# Rows up to which a dense matrix of them is formed, to leave rows out.
DENSE_ROWS = 4000

# Cells up to which a dense likelihood stands for steps from the targets and from each probe
# (bench_structure.py).
DENSE_CELLS = 1500


@dataclass(frozen=True)
class KrylovSettings:
    """Steps P (None: the default), subset of the rows, number of probes, and their seed."""

    steps: int | None
    subset: int | np.ndarray | None
    probes: int
    seed: int = 0
    exact: bool = True  # complete grids get the exact likelihood where they can
    dense: bool = False  # and so do few cells of others


@dataclass(frozen=True, eq=False)
class KrylovLikelihood(Likelihood):
    """What both kinds share: a basis made from the likelihood's own data."""

    subsets_share_features = False

    data: MarginalData
    basis: KrylovBasis
    settings: KrylovSettings

    logdet = None  # the probes' estimate, where it is used in place of the features' log determinant

    def given(self, X, y, sigma):
        """The likelihood of those data: exact, or with a basis made from them, by the same settings."""
        data = self.data.with_rows(X, y, sigma)
        return likelihood_for(data, self.basis.cov_func, self.settings)

    def part(self, rows):
        """With a subset of the rows for its basis, whose features any rows have."""
        if not self.basis.is_subset:
            return super().part(rows)
        return replace(self, data=self.data.part(rows))

    def precisions(self, model):
        """Under the kernel's own matrix; ValueError for a subset of rows, and beyond DENSE_ROWS rows."""
        n = len(held_value(self.data.X, "X"))
        if self.basis.is_subset or n > DENSE_ROWS:
            what = "inducing=" if self.basis.is_subset else f"{n} rows"
            raise ValueError(
                f"KMCGMarginal leaves rows out by the kernel's own matrix, up to {DENSE_ROWS} rows and "
                f"without inducing=, and has {what}: compare models by K-fold cross-validation, fitting "
                "them to X and y without a fold"
            )
        return ExactRows(self.data, self.basis.cov_func).precisions(model)

    def of_parts(self, parts, places):
        """Features of the parts' kernels, with the coefficients of the sum."""
        cov_func = sum((parts[place].cov_func for place in places[1:]), parts[places[0]].cov_func)
        return KMCGMap(cov_func, self.basis), self.coefficients()

    def conditional(self, name, data, feature_map, mean_func, coef, variance, **kwargs):
        """As for other features, by structured products, at the cells of a grid; dense at other points."""
        if data.grid is None:
            return _at_rows(name, data.tensor, feature_map, mean_func, coef, variance, **kwargs)
        if feature_map.is_of_part:
            raise ValueError(PART_AT_CELLS)
        feature_map = feature_map.changed(cells=data.grid)
        return super().conditional(name, data, feature_map, mean_func, coef, variance, **kwargs)

    def predictor(self, feature_map, mean_func, coef, noise, model):
        return RowsPredictor(feature_map, mean_func, coef, noise, model)

    def cell_predictor(self, data, feature_map, mean_func, coef, noise, model):
        """At the observed cells of another grid, by structured products with the basis."""
        return GridPredictor(feature_map, mean_func, data, coef, noise, model)

    def figures(self, points, model=None):
        """How far conjugate gradients have come, at the worst of the points.

        ``residual``, ``|y - (K + sigma^2 I) a| / |y|`` after P steps, and ``steps_needed`` until it is
        below 0.01 (infinite: not within P), see `KrylovBasis.residuals`. With probes
        `ProbedLogdet.errors` too, as ``logdet_se`` and ``logdet_excess``: half of each is an error of
        the log density.
        """
        residuals = self.basis.residuals(points, model, self.sigma**2)
        below = residuals <= 0.01
        steps = np.where(below.any(axis=1), below.argmax(axis=1) + 1.0, np.inf)
        found = {"residual": residuals[:, -1].max(), "steps_needed": steps.max()}
        if self.logdet is not None:
            names = ("logdet_se", "logdet_excess")
            found |= dict(zip(names, self.logdet.errors(points, model).max(axis=0), strict=True))
        return {name: float(value) for name, value in found.items()}


def _at_rows(name, X, feature_map, mean_func, coef, variance, **kwargs):
    """A `pm.MvNormal` at new rows, with a variance added to each and ``k - phi' phi`` between them."""
    phi, prior = feature_map.features(X), kernel_matrix(feature_map.cov_func, X)
    factor, each = coef.factor(phi), variance + KERNEL_JITTER * pt.diag(prior).mean()
    cov = prior - product(phi, phi, transpose_b=True) + product(factor, factor, transpose_b=True)
    mean = mean_vector(mean_func, X) + product(phi, coef.mean)
    return pm.MvNormal(name, mean, cov=cov + each * pt.eye(X.shape[0]), **kwargs)


class KrylovCoordinates(KrylovLikelihood):
    """DTC, one sigma, all rows: the basis starts at the targets, so that P + 1 coordinates suffice."""

    path: ClassVar[str] = "coordinates"

    def normal(self, noise):
        data, logdet = self.data, self.logdet
        return KrylovNormal(
            data.mean, self.basis.Q, self.basis.coordinates, noise,
            None if logdet is None else logdet.estimate(),
            targets=np.array(data.y.value), own=self._own, mutable=data.X.mutable or data.y.mutable,
        )  # fmt: skip

    @cached_property
    def _own(self):
        """Coordinates for the data's own targets: under probes rounding does not enter the density."""
        if self.logdet is not None:
            return None
        return in_eigenspaces(self.basis, self.data.residual).coordinates

    @cached_property
    def logdet(self) -> ProbedLogdet | None:
        settings, data, basis = self.settings, self.data, self.basis
        if settings.probes == 0:
            return None
        return ProbedLogdet(
            basis.operator, data.sigma**2, data.X, basis.steps, settings.probes, settings.seed
        )

    def coefficients(self, target=None, noise=None):
        """From the coordinates, where the residual is ``|e|`` times the first axis."""
        target, noise = self.handed(target, noise)
        length = pt.sqrt(((target - self.data.mean) ** 2).sum())
        projected = pt.concatenate([length[None], pt.zeros(self.basis.steps)])
        found = lowrank_posterior(self.basis.coordinates, noise, projected)
        return Coefficients(found.coef, found.root)


class KrylovFeatures(KrylovLikelihood, FullRows):
    """The features at all rows: for a diagonal correction, one sigma per row, or a subset of rows."""

    def _phi(self):
        return super()._phi() if self.basis.is_subset else self.basis.features()


@dataclass(frozen=True, eq=False)
class DenseCells(ExactRows):
    """Few cells of a grid, exactly: with gaps, of a kernel that is a sum, or under a sigma for each."""

    subsets_share_features = False

    remade: Callable[[MarginalData], Likelihood]

    def given(self, X, y, sigma):
        return self.remade(self.data.with_rows(X, y, sigma))


def likelihood_for(data: MarginalData, cov_func, settings: KrylovSettings) -> Likelihood:
    """The exact likelihood where the data and the settings allow it, else one with a basis of the data.

    Raises TypeError or ValueError for bad settings.
    """
    grid, plain = data.X.grid, data.approx == "DTC" and not data.sigma.ndim
    if settings.exact and data.approx == "DTC" and grid is not None:
        kron, few = plain and has_eigenbasis(grid, cov_func), settings.dense and grid.n <= DENSE_CELLS
        if kron or few:
            data = replace(data, feature_map=NoFeatures(cov_func))
            kind = KroneckerRows if kron else DenseCells
            return kind(data, cov_func, lambda new: likelihood_for(new, cov_func, settings))
    given = cov_func, settings.steps, settings.subset, data.X, data.residual
    kind, basis = KrylovFeatures, KrylovBasis.of(*given, distinct=True)
    # Coordinates start at the targets of all rows, and probes need them; the features of repeated or
    # spanned rows come without the directions that rounding makes.
    by_coordinates = settings.probes > 0 or not (basis.spans or basis.group is not None)
    if plain and not basis.is_subset and by_coordinates:
        kind, basis = KrylovCoordinates, KrylovBasis.of(*given)
    return kind(replace(data, feature_map=KMCGMap(cov_func, basis)), basis, settings)
