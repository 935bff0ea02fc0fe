"""Kernels that are stationary ones of other inputs: points in space, rows of groups far apart."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import Covariance, Stationary
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.utils.internals import own_columns


class Embedded(NamedTuple):
    """A kernel of rows X (n, c) as ``k(x, z) = k0(u(x), u(z))``.

    Attributes
    ----------
    kernel : pm.gp.cov.Stationary
        k0, of all columns of u.
    inputs : tensor, shape (n, p)
        u(X).
    places : tensor, shape (n, q)
        Coordinates in which near rows are highly correlated: distances over the lengthscale.
    layout : tensor, shape (n, q)
        Coordinates without parameters, in units of X, in which near rows are neighbours.
    """

    kernel: Stationary
    inputs: TensorVariable
    places: TensorVariable
    layout: TensorVariable


class EmbeddedKernel(Covariance, ABC):
    """Base of kernels that are stationary ones of other inputs.

    What computes kernels, searches neighbours or lays out points asks for these inputs.
    """

    @abstractmethod
    def of_columns(self, columns) -> Embedded:
        """The kernel as one of other inputs, from the columns (n, c) in `active_dims`."""

    @abstractmethod
    def check_rows(self, X: np.ndarray, name: str) -> None:
        """Raise ValueError for inputs (n, d) of which it is not a kernel; `name` goes to the message."""

    def embedded(self, X) -> Embedded:
        """The kernel as one of other inputs, from rows X (n, d)."""
        return self.of_columns(pt.as_tensor_variable(X)[:, self.active_dims])

    def full(self, X, Xs=None):
        """Kernel matrix."""
        X, Xs = own_columns(self, X, Xs)
        found = self.of_columns(X)
        return found.kernel.full(found.inputs, None if Xs is None else self.of_columns(Xs).inputs)

    def diag(self, X):
        """Prior variances."""
        X, _ = own_columns(self, X)
        found = self.of_columns(X)
        return found.kernel.diag(found.inputs)
