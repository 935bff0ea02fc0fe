"""Posterior of feature coefficients."""

from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.ops.stacked_cholesky import cholesky
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.ops.stacked_solve import lower_solve

# Where the data determine a coefficient, rounding may leave I - G'G this far below zero.
_ROUNDING = 1e-12


class Coefficients(NamedTuple):
    """``beta | y ~ N(mean, root' root)``: mean (r,); root (k, r), or (r,) when diagonal, or None.

    When `downdates`, the covariance is ``I - root root'`` instead, with root (r, k).
    """

    mean: TensorVariable
    root: TensorVariable | None
    downdates: bool = False

    def of(self, columns) -> "Coefficients":
        """Posterior of the coefficients of some features."""
        if self.root is None:
            return Coefficients(self.mean[columns], None)
        root = self.root[columns] if self.downdates else self.root[..., columns]
        return Coefficients(self.mean[columns], root, self.downdates)

    def factor(self, phi):
        """Root (n*, k) of the covariance of ``phi beta``, or None without one."""
        if self.root is None or self.root.ndim == 1:
            return None if self.root is None else phi * self.root
        if not self.downdates:
            return product(phi, self.root, transpose_b=True)
        # I - G (I + C)^-1 G' is a root of I - G G' for the Cholesky factor C of I - G'G.
        eye = pt.eye(self.root.shape[1])
        C = cholesky((1.0 + _ROUNDING) * eye - product(self.root, self.root, transpose_a=True))
        shrunk = lower_solve(eye + C, self.root.T)
        return phi - product(product(phi, self.root), shrunk)
