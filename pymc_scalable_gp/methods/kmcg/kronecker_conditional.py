"""Random variables of a function at new inputs, given all cells of a complete grid exactly."""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal, white
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.linops.structured import Kronecker
from pymc_scalable_gp.methods.kmcg.kronecker_normal import KroneckerNormal, root_of
from pymc_scalable_gp.methods.kmcg.regular_grid import SharedAxes
from pymc_scalable_gp.ops.gaussian_logp import gaussian_logp
from pymc_scalable_gp.ops.stacked_product import product


@dataclass(frozen=True, eq=False)
class CellsGivenCells(StructuredNormal):
    """Normal vector at cells of a grid, given those of another: draws axis by axis, a dense density."""

    kernels: tuple[TensorVariable, ...]  # of both grids' axes together
    noise: TensorVariable
    own: TensorVariable  # variance of each cell's own
    axes: SharedAxes

    @classmethod
    def of(cls, likelihood, data, mean_func, own) -> "CellsGivenCells":
        """Function at the cells `data`, with a variance added to each."""
        axes = SharedAxes.of(likelihood.grid, data.grid)
        target, noise = likelihood.handed(None, None)
        prior, own = mean_vector(mean_func, data.tensor), pt.as_tensor_variable(own)
        given = cls(prior, likelihood.factors(axes.both), noise, own, axes)
        residual = target - likelihood.data.mean
        mean = prior + given.moved(residual[:, None])[:, 0]
        return cls(mean, given.kernels, noise, own, axes)

    def moved(self, residuals):
        """``K_* (K + noise I)^-1`` times residuals (n, s)."""
        old = tuple(K[at][:, at] for K, at in zip(self.kernels, self.axes.old, strict=True))
        solved = KroneckerNormal(pt.zeros(1), old, self.noise).solve(residuals)
        return self._cross().matmat(solved)[self.axes.places]

    def _cross(self):
        places = zip(self.kernels, self.axes.new, self.axes.old, strict=True)
        return Kronecker([K[new][:, old] for K, new, old in places])

    def draw(self, rng, size):
        """By a draw of the prior at all cells of both grids, moved by the data (Matheron's rule)."""
        count = int(np.prod([K.type.shape[0] for K in self.kernels]))
        old, new = self.axes.cells(self.axes.old), self.axes.cells(self.axes.new)[self.axes.places]
        lengths = (count,), (len(old),), (self.mean.shape[0],)
        next_rng, found = white(rng, size, *lengths)
        z, missed, own = (each.reshape((-1, each.shape[-1])).T for each in found)
        prior = Kronecker([root_of(K) for K in self.kernels]).matmat(z)
        missed = prior[old] + pt.sqrt(self.noise) * missed
        drawn = prior[new] - self.moved(missed) + pt.sqrt(self.own) * own
        return next_rng, self.mean + drawn.T.reshape(found[2].shape)

    def logp(self, value):
        """Dense, in the cells of both grids."""
        places = self.axes.places
        cross = self._cross().to_dense()[places]
        new = Kronecker([K[at][:, at] for K, at in zip(self.kernels, self.axes.new, strict=True)])
        cov = new.to_dense()[places][:, places] - self.moved(cross.T)
        return gaussian_logp(cov, self.own * pt.ones(len(places)), value - self.mean)


def rows_given_cells(likelihood, name, cov_func, X, mean_func, own, **kwargs) -> TensorVariable:
    """A `pm.MvNormal` at rows X, with a variance added to each: dense, of rows times cells.

    Of the function with the kernel `cov_func`, the likelihood's or that of a part of the sum.
    """
    target, noise = likelihood.handed(None, None)
    axes = likelihood.grid.axes
    cross, *rest = likelihood.factors([X[:, i] for i in range(len(axes))], axes, cov_func)
    for k in rest:
        cross = (cross[:, :, None] * k[:, None, :]).reshape((X.shape[0], -1))
    both = pt.concatenate([(target - likelihood.data.mean)[None], cross], axis=0).T
    found = product(cross, likelihood.normal(noise).solve(both))
    cov = kernel_matrix(cov_func, X) - found[:, 1:] + own * pt.eye(X.shape[0])
    return pm.MvNormal(name, mean_vector(mean_func, X) + found[:, 0], cov=cov, **kwargs)
