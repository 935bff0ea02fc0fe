"""Kernel matrices of ``pm.gp.cov`` covariances, from distances that keep their digits.

``Stationary.square_dist`` of PyMC expands ``|x|^2 + |z|^2 - 2 x'z``, which an offset of the inputs
destroys: years lose eight digits, seconds since 1970 all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, mul

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance, Covariance, Stationary
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.ops.square_distances import square_distances
from pymc_scalable_gp.ops.stationary_kernel import stationary_kernel
from pymc_scalable_gp.utils.graphs import as_scalar
from pymc_scalable_gp.utils.internals import parts_of
from pymc_scalable_gp.utils.stationary import kernel_of_squares, root_of_squares

# Methods that make of the inputs what a kernel is a function of: with its own a subclass may be any kernel.
_OF_INPUTS = ("__call__", "full", "diag", "square_dist", "euclidean_dist")

# Inputs up to which their gradients cost less than a matrix of distances kept for one lengthscale's.
_FEW = 8


@dataclass(frozen=True)
class Traits:
    """What the package knows of a class of kernels; subclasses share at most the last two."""

    # form(cov, X, Z) is the kernel matrix, in place of a call of the kernel.
    form: Callable | None = None
    # An Op computes its matrices and blocks with the distances (ops.stationary_kernel).
    fused: bool = False
    # A function of |x - z| / ls alone, which products evaluate for all inputs at once.
    stacked: bool = False
    stationary: bool = True  # a function of x - z alone
    categorical: bool | None = False  # nothing lies between two values of its column; None: not known


def traits(cov) -> Traits:
    """Traits of a kernel: its own, which kernels of this package state, or those of :data:`KERNELS`."""
    if found := getattr(cov, "traits", None) or KERNELS.get(type(cov)):
        return found
    own = type(cov)
    kind = next((kind for kind in own.__mro__ if kind in KERNELS), None)
    base = KERNELS.get(kind, UNKNOWN)
    same = all(getattr(own, name, None) is getattr(kind, name, None) for name in _OF_INPUTS)
    return replace(base, form=None, fused=False, stacked=False, stationary=base.stationary and same)


def kernel_matrix(cov_func: BaseCovariance, X, Z=None) -> TensorVariable:
    r"""Kernel matrix ``k(x_i, z_j)`` (n, m) of any covariance.

    Sums, products, powers, scalings and warpings are followed to their stationary parts, which are
    functions of :func:`square_distances`; every other kernel is called as it is. Without Z (m, d), of X
    (n, d) and itself, stationary kernels are exactly symmetric, with the exact prior variance on the
    diagonal. In float64; between equal points, the gradient of a Matern kernel in X and Z is 0. Nowhere is
    anything of size n x m x d formed.
    """
    X = _trimmed(cov_func, pt.as_tensor_variable(X))
    Z = None if Z is None else _trimmed(cov_func, pt.as_tensor_variable(Z))
    return _matrix(cov_func, X, Z).astype("float64")


def kernel_diag(cov_func: BaseCovariance, X) -> TensorVariable:
    """Prior variances ``k(x_i, x_i)`` (n,) as float64, for inputs (n, d)."""
    return cov_func(_trimmed(cov_func, pt.as_tensor_variable(X)), diag=True).astype("float64")


def from_square_distance(kernel: Stationary, squared) -> TensorVariable:
    """Kernel as a function of the squared scaled distance, elementwise.

    PyMC adds 1e-12 to the square before a root, which takes 1e-6 off the variance of an `Exponential`.
    Here ``k(x, x) = 1``, and the root's slope at 0 counts as 0.
    """
    form = type(kernel).full_from_distance
    for kind in type(kernel).__mro__:
        if kind in KERNELS and KERNELS[kind].fused and kind.full_from_distance is form:
            return kernel_of_squares(kind.__name__, squared, getattr(kernel, "alpha", 1.0), pt)
    if form is pm.gp.cov.Cosine.full_from_distance:
        return kernel.full_from_distance(root_of_squares(squared, pt))
    return kernel.full_from_distance(squared, squared=True)


def _trimmed(cov_func, X):
    """X without the last columns, where the kernel was made for fewer: PyMC warns at each call."""
    if not isinstance(cov_func, Covariance) or X.ndim != 2 or X.type.shape[1] is None:
        return X
    if cov_func.active_dims.min() < 0:  # counted from the last
        return X
    wanted = max(cov_func.input_dim, int(cov_func.active_dims.max()) + 1)
    return X[:, :wanted] if wanted < X.type.shape[1] else X


def _columns(kernel, *inputs):
    """The columns of the inputs, or of those that are given, that the kernel is a function of."""
    dims = kernel.active_dims
    return [
        A if A is None or np.array_equal(dims, np.arange(A.type.shape[1] or 0)) else A[:, dims]
        for A in inputs
    ]


def _matrix(cov, X, Z):
    if not isinstance(cov, BaseCovariance):
        return cov  # a scalar or an array in a sum or a product
    if form := traits(cov).form:
        return form(cov, X, Z)
    if _is_plain(cov):
        return _stationary(cov, X, Z)
    return cov(X) if Z is None else cov(X, Z)


def _is_plain(cov):
    """Whether the kernel is what `Stationary` makes of ``full_from_distance``, and no more."""
    kind = type(cov)
    return (
        issubclass(kind, Stationary)
        and kind.__call__ is BaseCovariance.__call__
        and kind.full is Stationary.full
        and kind.square_dist is Stationary.square_dist
        and cov.ls.ndim <= 1
    )


def _stationary(cov, X, Z):
    X, Z = _columns(cov, X, Z)
    single, d = cov.ls.ndim == 0 or cov.ls.type.shape == (1,), len(cov.active_dims)
    if traits(cov).fused and (d <= _FEW or not single):
        ls, shape = cov.ls * np.ones(d), as_scalar(getattr(cov, "alpha", 1.0))
        return stationary_kernel(type(cov).__name__, X, Z, ls, shape)
    if single:
        # What is differentiated is elementwise, whatever the number of inputs.
        return from_square_distance(cov, square_distances(X, Z) / as_scalar(cov.ls) ** 2)
    return from_square_distance(cov, square_distances(X, Z, 1.0 / cov.ls))


def _periodic(cov, X, Z):
    """``sum_a (sin(pi (x_a - z_a) / period_a) / ls_a)^2``, one input after the other."""
    inner = cov.cov_func if isinstance(cov, pm.gp.cov.WrappedPeriodic) else cov
    X, Z = _columns(cov, X, Z)
    Z = X if Z is None else Z
    entries = [pt.atleast_1d(pt.as_tensor_variable(v)) for v in (cov.period, inner.ls)]
    total = 0.0
    for a in range(len(cov.active_dims)):
        period, ls = (v[a if v.type.shape != (1,) else 0] for v in entries)
        angle = np.pi * (X[:, a][:, None] - Z[:, a][None, :]) / period
        total = total + (pt.sin(angle) / ls) ** 2
    return from_square_distance(inner, total)


def _scaled(cov, X, Z):
    X, Z = _columns(cov, X, Z)
    left = cov.scaling_func(X, cov.args)
    right = left if Z is None else cov.scaling_func(Z, cov.args)
    return pt.outer(left, right) * _matrix(cov.cov_func, X, Z)


def _warped(cov, X, Z):
    X, Z = _columns(cov, X, Z)
    return _matrix(cov.cov_func, cov.w(X, cov.args), None if Z is None else cov.w(Z, cov.args))


def _gibbs(cov, X, Z):
    X, Z = _columns(cov, X, Z)
    left = pt.as_tensor_variable(cov.lfunc(X, cov.args)).reshape((-1, 1))
    right = left if Z is None else pt.as_tensor_variable(cov.lfunc(Z, cov.args)).reshape((-1, 1))
    total = left**2 + right.T**2
    return pt.sqrt(2.0 * left * right.T / total) * pt.exp(-square_distances(X, Z) / total)


def _parts(join):
    """Matrix of a sum or product."""
    return lambda cov, X, Z: reduce(join, (_matrix(part, X, Z) for part in parts_of(cov)))


def _power(cov, X, Z):
    return _matrix(cov.kernel, X, Z) ** cov.power


# Whatever else is called, as it is, and holds what its user says.
UNKNOWN = Traits(stationary=False, categorical=None)

KERNELS = {
    pm.gp.cov.ExpQuad: Traits(fused=True, stacked=True),
    pm.gp.cov.Matern12: Traits(fused=True, stacked=True),
    pm.gp.cov.Exponential: Traits(fused=True, stacked=True),
    pm.gp.cov.Matern32: Traits(fused=True, stacked=True),
    pm.gp.cov.Matern52: Traits(fused=True, stacked=True),
    pm.gp.cov.RatQuad: Traits(fused=True),
    pm.gp.cov.Cosine: Traits(stacked=True),
    pm.gp.cov.Periodic: Traits(_periodic),
    pm.gp.cov.WrappedPeriodic: Traits(_periodic),
    pm.gp.cov.Stationary: Traits(),
    pm.gp.cov.Circular: Traits(),
    pm.gp.cov.Constant: Traits(),
    pm.gp.cov.Gibbs: Traits(_gibbs, stationary=False),
    pm.gp.cov.Linear: Traits(stationary=False),
    pm.gp.cov.Coregion: Traits(stationary=False, categorical=True),
    pm.gp.cov.Add: replace(UNKNOWN, form=_parts(add)),
    pm.gp.cov.Prod: replace(UNKNOWN, form=_parts(mul)),
    pm.gp.cov.Exponentiated: replace(UNKNOWN, form=_power),
    pm.gp.cov.ScaledCov: replace(UNKNOWN, form=_scaled),
    pm.gp.cov.WarpedInput: replace(UNKNOWN, form=_warped),
}
