"""What features leave of a kernel, in the sparse form of block Vecchia."""

from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.cov.embedded import EmbeddedKernel
from pymc_scalable_gp.cov.kernels import kernel_matrix, traits
from pymc_scalable_gp.cov.queries import split_scale
from pymc_scalable_gp.ops.stationary_factor import stationary_factor
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


def regressions(cov_func, X, phi, noise, neighbors, block: int, first=0) -> Regressions:
    r"""Regressions of blocks of rows on their neighbours under ``K - Phi Phi' + diag(noise)``.

    Parameters
    ----------
    cov_func : pm.gp.cov.BaseCovariance
        Any kernel. A scaled stationary one is evaluated block by block; of others all blocks are
        formed, b (k + g)^2 numbers.
    X : tensor, shape (n, d)
        Inputs, in the order of the blocks.
    phi : tensor, shape (n, r)
    noise : tensor, shape (n,)
    neighbors : integer tensor, shape (b, k)
    block : int
        Rows of a block; with k a static number.
    first : int or scalar tensor
        The blocks are cut from this row on.
    """
    neighbors, kernel = pt.as_tensor(neighbors), fused_kernel(cov_func, X)
    if kernel is not None:
        A, L = stationary_factor(*kernel, phi, noise, neighbors, first, block)
        return Regressions(A, L, neighbors)
    blocks = _blocks(cov_func, X, neighbors, block, first)
    return Regressions(*vecchia_factor(blocks, phi, noise, neighbors, first), neighbors)


class FusedKernel(NamedTuple):
    """A scaled stationary kernel between rows, as the fused Ops take it."""

    kind: str
    X: TensorVariable  # (n, p), the active inputs
    rates: TensorVariable  # inverse lengthscales (p,)
    variance: TensorVariable
    shape: TensorVariable  # alpha of a RatQuad or an Arc


def fused_kernel(cov_func, X) -> FusedKernel | None:
    """The kernel in the form of the fused Ops; None where it has none.

    Inputs with a prior need the gradient that the fused Ops do not have.
    """
    scale, kernels = split_scale(cov_func)
    scale = pt.as_tensor(scale)
    if len(kernels) != 1:
        return None
    (kernel,) = kernels
    if isinstance(kernel, EmbeddedKernel):
        found = kernel.embedded(X)
        if found.apart is not None:
            return None
        kernel, X, scale = found.kernel, found.inputs, scale * found.scale**2
    if not traits(kernel).fused or scale.ndim or is_random(X):
        return None
    dims, ls = kernel.active_dims, pt.as_tensor(kernel.ls)
    if ls.ndim > 1:
        return None
    shape = pt.as_tensor(getattr(kernel, "alpha", 1.0))
    return FusedKernel(type(kernel).__name__, X[:, dims], pt.ones(len(dims)) / ls, scale, shape)


def _blocks(cov_func, X, neighbors, block, first):
    """Kernel (b, k + g, k + g) between the local rows, arbitrary at unused places."""
    count, k = neighbors.shape[0], neighbors.type.shape[1]
    own = first + pt.arange(count)[:, None] * block + np.arange(block)
    places = pt.concatenate([neighbors, own], axis=1).clip(0, X.shape[0] - 1)
    local = X[places]
    core = pt.matrix("local", dtype="float64", shape=(k + block, X.type.shape[1]))
    local_kernels = vectorize_graph(kernel_matrix(cov_func, core), {core: local})
    return pt.specify_shape(local_kernels, (None, k + block, k + block))
