"""What features leave of a kernel, in the sparse form of block Vecchia."""

from itertools import chain
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import Periodic, WrappedPeriodic
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.cov.embedded import EmbeddedKernel, first_row, on_circles
from pymc_scalable_gp.cov.kernels import kernel_matrix, traits
from pymc_scalable_gp.cov.queries import sum_of_products
from pymc_scalable_gp.ops.stationary_blocks import stationary_blocks
from pymc_scalable_gp.ops.stationary_factor import stationary_factor
from pymc_scalable_gp.ops.stationary_logp import stationary_logp
from pymc_scalable_gp.ops.vecchia_factor import vecchia_factor
from pymc_scalable_gp.utils.graphs import as_scalar, is_random


class Regressions(NamedTuple):
    """Blocks of rows given their neighbours: ``mean A v_N``, covariance ``L L'``."""

    A: TensorVariable  # (b, g, k)
    L: TensorVariable  # (b, g, g)
    neighbors: TensorVariable  # (b, k)

    def half_logdet(self) -> TensorVariable:
        """Half the log determinant of the covariance."""
        return pt.log((self.L * np.eye(self.L.type.shape[1])).sum(axis=2)).sum()


def regressions(cov_func, X, phi, noise, neighbors, block: int, first=0, rest=None) -> Regressions:
    r"""Regressions of blocks of rows on their neighbours under ``K - Phi Phi' + diag(noise)``.

    Inputs X (n, d), features (n, r) and noise (n,) are in the order of the blocks of `block` rows, cut from
    the row `first` on; of their neighbors (b, k), k is static. A sum of products of stationary kernels is
    evaluated block by block; of others all blocks are formed, b (k + g)^2 numbers.
    With `rest`, another kernel and a number of rows before `first`, K holds it too between those rows.
    """
    neighbors, kernel = pt.as_tensor(neighbors), fused_kernel(cov_func, X)
    if kernel is not None and rest is None:
        return fused_regressions(kernel, phi, noise, neighbors, block, first)
    blocks = _blocks(cov_func, X, neighbors, block, first)
    if rest is not None:
        other, count = rest
        own = pt.zeros((neighbors.shape[0], block), dtype=bool)
        among = pt.concatenate([pt.lt(neighbors, count), own], axis=1)
        both = among[:, :, None] & among[:, None]
        blocks = blocks + pt.switch(both, _blocks(other, X, neighbors, block, first), 0.0)
    return Regressions(*vecchia_factor(blocks, phi, noise, neighbors, first), neighbors)


class FusedKernel(NamedTuple):
    """A sum of products of stationary kernels between rows, as the fused Ops take it."""

    summands: tuple[tuple[str, ...], ...]  # kinds of the t factors of q products
    X: TensorVariable  # (n, p), the active inputs
    rates: TensorVariable  # inverse lengthscales (t, p), 0 for inputs of other factors
    variance: TensorVariable  # (q,)
    shape: TensorVariable  # (t,), alpha of a RatQuad or an Arc
    moving: bool  # whether X depends on parameters
    rows: TensorVariable | None  # factors of the rows (t, n), where they differ


def fused_kernel(cov_func, X, origin=None) -> FusedKernel | None:
    """The kernel in the form of the fused Ops; None where it has none.

    Inputs of kernels that are no function of X itself are those of rows less an `origin` (d,), by default
    the first row: one for all rows that are compared.
    """
    origin = first_row(X) if origin is None else origin
    summands, variances, factors = [], [], []
    for scale, kernels in sum_of_products(cov_func):
        found = [_factor(kernel, X, origin) for kernel in kernels]
        if not found or None in found:
            return None
        factors += found
        summands.append(tuple(each.kind for each in found))
        for each in found:
            scale = scale if each.scale.ndim else scale * each.scale**2
        variances.append(pt.as_tensor(scale))
    if any(variance.ndim for variance in variances):
        return None
    inputs, rates = _side_by_side(factors, X)
    shape = pt.stack([each.shape for each in factors])
    rows = None
    if any(each.scale.ndim for each in factors):
        ones = pt.ones(X.shape[0])
        rows = pt.stack([each.scale if each.scale.ndim else ones for each in factors])
    return FusedKernel(tuple(summands), inputs, rates, pt.stack(variances), shape, is_random(inputs), rows)


class _Factor(NamedTuple):
    """A stationary kernel of inputs u(x): ``s(x) s(z) f(|rates (u(x) - u(z))|^2)``."""

    kind: str
    rates: TensorVariable  # (p,)
    shape: TensorVariable
    columns: list[int]  # p of X, or of other inputs:
    inputs: TensorVariable | None = None  # (n, p)
    scale: TensorVariable = pt.constant(1.0)  # s(X), a scalar or (n,)


def _factor(kernel, X, origin) -> _Factor | None:
    """A kernel without its scale as a factor; None where it is none."""
    others = ()
    if isinstance(kernel, EmbeddedKernel):
        found = kernel.embedded(X, origin)
        if found.apart is not None:
            return None
        kernel, others = found.kernel, (found.inputs, found.scale)
    elif type(kernel) is Periodic or (type(kernel) is WrappedPeriodic and traits(kernel.cov_func).fused):
        kernel, inputs = on_circles(kernel, X - origin)
        others = (inputs,)
    if not traits(kernel).fused or pt.as_tensor(kernel.ls).ndim > 1:
        return None
    columns = [int(a) for a in kernel.active_dims]
    shape = as_scalar(getattr(kernel, "alpha", 1.0))
    return _Factor(type(kernel).__name__, pt.ones(len(columns)) / kernel.ls, shape, columns, *others)


def _side_by_side(factors, X) -> tuple[TensorVariable, TensorVariable]:
    """Inputs (n, p), columns of X once, then all others; and rates (t, p), 0 for others' inputs."""
    own = [each.columns for each in factors if each.inputs is None]
    columns = sorted(set(chain(*own)))
    inputs = [X[:, columns]] if columns else []
    places, width = [], len(columns)
    for each in factors:
        if each.inputs is None:
            places.append([columns.index(a) for a in each.columns])
        else:
            start, width = width, width + len(each.columns)
            places.append(range(start, width))
            inputs.append(each.inputs)
    rates = [each.rates @ np.eye(width)[at] for each, at in zip(factors, places, strict=True)]
    return pt.concatenate(inputs, axis=1) if len(inputs) > 1 else inputs[0], pt.stack(rates)


def fused_regressions(kernel: FusedKernel, phi, noise, neighbors, block, first=0) -> Regressions:
    """As :func:`regressions`."""
    *parts, moving, rows = kernel
    found = stationary_factor(*parts, phi, noise, neighbors, first, block, moving, rows)
    return Regressions(*found, neighbors)


def fused_logp(kernel: FusedKernel, phi, noise, residual, neighbors, block) -> TensorVariable:
    """Log density of a residual under features, noise and block Vecchia, block by block."""
    *parts, moving, rows = kernel
    return stationary_logp(*parts, phi, noise, residual, neighbors, block, moving, rows)


def fused_blocks(kernel: FusedKernel, phi, neighbors, block) -> TensorVariable:
    """Kernel less the features' part (b, k + g, k + g), between the local rows of each block."""
    *parts, moving, rows = kernel
    return stationary_blocks(*parts, phi, neighbors, block, moving, rows)


def _blocks(cov_func, X, neighbors, block, first):
    """Kernel (b, k + g, k + g) between the local rows, arbitrary at unused places."""
    count, k = neighbors.shape[0], neighbors.type.shape[1]
    own = first + pt.arange(count)[:, None] * block + np.arange(block)
    places = pt.concatenate([neighbors, own], axis=1).clip(0, X.shape[0] - 1)
    local = X[places]
    core = pt.matrix("local", dtype="float64", shape=(k + block, X.type.shape[1]))
    local_kernels = vectorize_graph(kernel_matrix(cov_func, core), {core: local})
    return pt.specify_shape(local_kernels, (None, k + block, k + block))
