"""Posterior of feature coefficients."""

from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.ops.eigh_sorted import eigh_sorted
from pymc_scalable_gp.ops.stacked_product import product


class Coefficients(NamedTuple):
    """``beta | y ~ N(mean, root' root)``: mean (r,); root (k, r), or (r,) when diagonal, or None.

    When `deflated`, the covariance is ``I - root root'`` instead, with root (r, k).
    """

    mean: TensorVariable
    root: TensorVariable | None
    deflated: bool = False

    def of(self, columns) -> "Coefficients":
        """Those of some features."""
        if self.root is None:
            return Coefficients(self.mean[columns], None)
        root = self.root[columns] if self.deflated else self.root[..., columns]
        return Coefficients(self.mean[columns], root, self.deflated)

    def factor(self, phi):
        """Root (n*, k) of the covariance of ``phi beta``, or None without one."""
        if self.root is None or self.root.ndim == 1:
            return None if self.root is None else phi * self.root
        if not self.deflated:
            return product(phi, self.root, transpose_b=True)
        # (I - G W G')^2 = I - G G' for W = (I + (I - G'G)^1/2)^-1
        gram = product(self.root, self.root, transpose_a=True)
        values, vectors = (x[0] for x in eigh_sorted(gram[None]))
        turned = product(self.root, vectors)  # G W G' = turned diag(.) turned'
        shrunk = product(phi, turned) / (1.0 + pt.sqrt(pt.maximum(1.0 - values, 0.0)))
        return phi - product(shrunk, turned, transpose_b=True)
