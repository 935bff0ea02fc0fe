"""What features leave of a kernel, in the sparse form of block Vecchia."""

from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.cov.embedded import EmbeddedKernel, first_row
from pymc_scalable_gp.cov.kernels import kernel_matrix, traits
from pymc_scalable_gp.cov.queries import split_scale
from pymc_scalable_gp.ops.stationary_factor import stationary_factor
from pymc_scalable_gp.ops.stationary_logp import stationary_logp
from pymc_scalable_gp.ops.vecchia_factor import vecchia_factor
from pymc_scalable_gp.utils.graphs import is_random


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
    the row `first` on; of their neighbors (b, k), k is static. A scaled stationary kernel is evaluated
    block by block; of others all blocks are formed, b (k + g)^2 numbers.
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
    """A scaled stationary kernel between rows, as the fused Ops take it."""

    kind: str
    X: TensorVariable  # (n, p), the active inputs
    rates: TensorVariable  # inverse lengthscales (p,)
    variance: TensorVariable
    shape: TensorVariable  # alpha of a RatQuad or an Arc
    scale: TensorVariable | None = None  # factors of the rows (n,), where they differ
    moving: bool = False  # whether X depends on parameters


def fused_kernel(cov_func, X) -> FusedKernel | None:
    """The kernel in the form of the fused Ops; None where it has none."""
    scale, kernels = split_scale(cov_func)
    scale = pt.as_tensor(scale)
    if len(kernels) != 1:
        return None
    (kernel,), factors = kernels, None
    if isinstance(kernel, EmbeddedKernel):
        found = kernel.embedded(X, first_row(X))
        if found.apart is not None:
            return None
        kernel, X = found.kernel, found.inputs
        if found.scale.ndim:
            factors = found.scale
        else:
            scale = scale * found.scale**2
    if not traits(kernel).fused or scale.ndim:
        return None
    dims, ls = kernel.active_dims, pt.as_tensor(kernel.ls)
    if ls.ndim > 1:
        return None
    shape = pt.as_tensor(getattr(kernel, "alpha", 1.0))
    rates = pt.ones(len(dims)) / ls
    return FusedKernel(
        type(kernel).__name__, X[:, dims], rates, scale, shape, factors, is_random(X)
    )


def fused_regressions(kernel: FusedKernel, phi, noise, neighbors, block, first=0) -> Regressions:
    """As :func:`regressions`; with factors of the rows those of rows divided by them, and back."""
    *parts, factors, moving = kernel
    if factors is None:
        found = stationary_factor(*parts, phi, noise, neighbors, first, block, moving)
        return Regressions(*found, neighbors)
    A, L = stationary_factor(
        *parts, phi / factors[:, None], noise / factors**2, neighbors, first, block, moving
    )
    count, n = neighbors.shape[0], factors.shape[0]
    own = first + pt.arange(count)[:, None] * block + np.arange(block)
    # Rows that a block does not have keep ones on the diagonal.
    left = pt.where(own < n, factors[own.clip(0, n - 1)], 1.0)[:, :, None]
    A = left * A / factors[neighbors.clip(0, n - 1)][:, None, :]
    return Regressions(A, left * L, neighbors)


def fused_logp(kernel: FusedKernel, phi, noise, residual, neighbors, block) -> TensorVariable:
    """Log density of a residual under features, noise and block Vecchia, block by block."""
    *parts, factors, moving = kernel
    if factors is None:
        return stationary_logp(*parts, phi, noise, residual, neighbors, block, moving)
    scaled = phi / factors[:, None], noise / factors**2, residual / factors
    logp = stationary_logp(*parts, *scaled, neighbors, block, moving)
    return logp - pt.log(factors).sum()


def _blocks(cov_func, X, neighbors, block, first):
    """Kernel (b, k + g, k + g) between the local rows, arbitrary at unused places."""
    count, k = neighbors.shape[0], neighbors.type.shape[1]
    own = first + pt.arange(count)[:, None] * block + np.arange(block)
    places = pt.concatenate([neighbors, own], axis=1).clip(0, X.shape[0] - 1)
    local = X[places]
    core = pt.matrix("local", dtype="float64", shape=(k + block, X.type.shape[1]))
    local_kernels = vectorize_graph(kernel_matrix(cov_func, core), {core: local})
    return pt.specify_shape(local_kernels, (None, k + block, k + block))
