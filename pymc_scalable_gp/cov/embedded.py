"""Kernels that are stationary ones of other inputs: points in space, rows of groups far apart."""

from abc import ABC, abstractmethod
from inspect import signature
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance, Covariance, ExpQuad, Periodic, RatQuad, Stationary
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.cov.kernels import Traits, kernel_matrix
from pymc_scalable_gp.utils.internals import own_columns


class Embedded(NamedTuple):
    """A kernel of rows X (n, c) as ``s(x) s(z) k0(u(x), u(z))``."""

    kernel: Stationary  # k0, of all columns of u
    inputs: TensorVariable  # u(X) (n, p)
    # Coordinates (n, q) in which near rows are highly correlated: distances over the lengthscale.
    places: TensorVariable
    # Coordinates (n, q) without parameters, in units of X, in which near rows are neighbours.
    layout: TensorVariable
    scale: TensorVariable = pt.constant(1.0)  # s(X), prior standard deviations, a scalar or (n,)
    # The kernel is 0 between rows of which these (n,) differ, where k0 is not.
    apart: TensorVariable | None = None


class EmbeddedKernel(Covariance, ABC):
    """Base of kernels that are stationary ones of other inputs, which neighbours and points go by too."""

    traits = Traits(lambda cov, X, Z: cov.full(X, Z), stationary=False)

    @abstractmethod
    def of_columns(self, columns, origin=None) -> Embedded:
        """The kernel as one of other inputs, from the columns (n, c) in `active_dims`.

        What scales rows by parameters subtracts a row `origin` (c,) first, so that an offset costs no
        digits; it is the same for all rows that are compared.
        """

    @abstractmethod
    def check_rows(self, X: np.ndarray, name: str) -> None:
        """Raise ValueError for inputs (n, d) of which it is not a kernel; `name` goes to the message."""

    def as_products(self) -> BaseCovariance | None:
        """The same kernel as a sum of products of kernels on fewer columns, or None."""
        return None

    def embedded(self, X, origin=None) -> Embedded:
        """The kernel as one of other inputs, from rows X (n, d); `origin` (d,) as in `of_columns`."""
        origin = None if origin is None else origin[self.active_dims]
        return self.of_columns(pt.as_tensor_variable(X)[:, self.active_dims], origin)

    def full(self, X, Xs=None):
        """Kernel matrix."""
        X, Xs = own_columns(self, X, Xs)
        origin = first_row(X)
        left = self.of_columns(X, origin)
        right = left if Xs is None else self.of_columns(Xs, origin)
        K = kernel_matrix(left.kernel, left.inputs, None if Xs is None else right.inputs)
        if left.apart is not None:
            K = K * pt.eq(left.apart[:, None], right.apart)
        return K * (left.scale[:, None] if left.scale.ndim else left.scale) * right.scale


def on_circles(kernel, X) -> tuple[Stationary, TensorVariable]:
    """A periodic kernel of rows X (n, d) as a stationary one of points (n, 2 c) on circles."""
    wrapped = isinstance(kernel, pm.gp.cov.WrappedPeriodic)
    inner, kind = (kernel.cov_func, type(kernel.cov_func)) if wrapped else (kernel, ExpQuad)
    count = len(kernel.active_dims)
    angle = 2.0 * np.pi * X[:, kernel.active_dims] / kernel.period
    # Of half a unit's radius: |u(x) - u(z)| = |sin(pi (x - z) / period)|.
    points = 0.5 * pt.concatenate([pt.cos(angle), pt.sin(angle)], axis=1)
    ls = pt.tile(pt.ones(count) * inner.ls, 2)
    alpha = {"alpha": inner.alpha} if kind is RatQuad else {}
    return kind(2 * count, ls=ls, **alpha), points


def first_row(X):
    """The first of the rows X (n, d), as an origin; zeros where there is none."""
    return X[:1].sum(axis=0)


def check_stationary(kernel, params, example: str, periodic: str) -> None:
    """Raise TypeError for no class of stationary kernels, ValueError with `periodic` for periodic ones."""
    if not isinstance(kernel, type) or not issubclass(kernel, Stationary):
        name = getattr(kernel, "__name__", type(kernel).__name__)
        raise TypeError(
            f"kernel must be a class of stationary kernels, such as pm.gp.cov.{example} (without "
            f"parentheses), got {name}"
        )
    known = set(signature(kernel.__init__).parameters)
    known -= {"self", "input_dim", "ls", "ls_inv", "active_dims"}
    if unknown := sorted(set(params) - known):
        raise TypeError(f"{kernel.__name__} takes no {', '.join(f'{k}=' for k in unknown)} here")
    if issubclass(kernel, pm.gp.cov.Cosine | Periodic):
        raise ValueError(f"{kernel.__name__} {periodic}")
