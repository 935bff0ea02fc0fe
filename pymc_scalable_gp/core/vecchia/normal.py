"""Normal vectors whose covariance is low-rank plus block-Vecchia."""

from abc import abstractmethod
from dataclasses import dataclass, fields

import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.features.residual import (
    FusedKernel,
    Regressions,
    fused_blocks,
    fused_logp,
    fused_regressions,
)
from pymc_scalable_gp.core.likelihoods.lowrank import LowRank
from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal, white
from pymc_scalable_gp.ops.block_logp import block_logp
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.vecchia_color import vecchia_color
from pymc_scalable_gp.ops.vecchia_whiten import vecchia_whiten


@dataclass(frozen=True, eq=False)
class VecchiaNormal(StructuredNormal):
    r"""Multivariate normal with covariance :math:`\Phi\Phi^\top + S`, S of block-Vecchia form.

    .. math:: v = \mu + \Phi z + u, \qquad u_b = A_b u_{N(b)} + L_b\,\varepsilon_b

    Log density and draws cost O(n (k + g) (r + 1) + n r^2). A covariance that is not positive definite
    gives NaN.
    """

    phi: TensorVariable  # features (n, r), in the order of the blocks
    neighbors: TensorVariable  # of the blocks (b, k)
    order: TensorVariable  # the place (n,) in `mean` and in the vector of each row of `phi`

    label = "VecchiaNormal"

    @property
    @abstractmethod
    def regressions(self) -> Regressions:
        """Regressions of the blocks on their neighbours."""

    def draw(self, rng, size):
        """All draws at once, as columns."""
        n, rank = self.phi.shape
        next_rng, (z, e) = white(rng, size, (rank,), (n,))
        own = vecchia_color(e.reshape((-1, n)).T, *self.regressions).T.reshape(e.shape)
        return next_rng, self.mean + (z @ self.phi.T + own)[..., pt.argsort(self.order)]

    def solve(self, values):
        """As of features and unit noise for whitened columns, whitened once more by the transpose."""
        found, columns = self.regressions, values[self.order]
        white = vecchia_whiten(columns, *found)
        phi = vecchia_whiten(self.phi, *found)
        low = LowRank(pt.zeros(phi.shape[0]), phi, pt.constant(1.0))
        product = (white * disconnected_grad(low.solve(white))).sum()
        return pt.grad(product, columns)[pt.argsort(self.order)]


@dataclass(frozen=True, eq=False)
class RegressedNormal(VecchiaNormal):
    """With the regressions A (b, g, k) and L (b, g, g)."""

    A: TensorVariable
    L: TensorVariable

    @property
    def regressions(self):
        """Those given."""
        return Regressions(self.A, self.L, self.neighbors)

    def logp(self, value):
        """Log density of the whitened vector, less the log determinant."""
        found = self.regressions
        residual, phi = whitened_terms((value - self.mean)[self.order], self.phi, found)
        return lowrank_logp(phi, pt.constant(1.0), residual).logp - found.half_logdet()


@dataclass(frozen=True, eq=False)
class StationaryNormal(VecchiaNormal):
    """With noise variances (n,) and a stationary kernel, whose density is summed block by block."""

    noise: TensorVariable
    kernel: FusedKernel | tuple
    block: int

    @property
    def regressions(self):
        """By the kernel."""
        return fused_regressions(self.kernel, self.phi, self.noise, self.neighbors, self.block)

    def logp(self, value):
        """Block by block."""
        residual = (value - self.mean)[self.order]
        return fused_logp(self.kernel, self.phi, self.noise, residual, self.neighbors, self.block)

    def prepared(self):
        """With the kernel's blocks."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return BlockNormal(**own, blocks=fused_blocks(self.kernel, self.phi, self.neighbors, self.block))


@dataclass(frozen=True, eq=False)
class BlockNormal(StationaryNormal):
    """The same, with the kernel less the features' part between the local rows of each block."""

    blocks: TensorVariable  # (b, k + g, k + g)

    def prepared(self):
        """It is."""
        return self

    def _logp(self, *residuals):
        """Log density of each."""
        ordered = pt.stack([residual[self.order] for residual in residuals])
        given = self.blocks, self.phi, self.noise, ordered, self.neighbors
        return block_logp(*given, self.block)

    def logp(self, value):
        """From the blocks."""
        return self._logp(value - self.mean)[0]

    def product(self, left, right):
        """Both densities at once."""
        logp = self._logp(right - left, right + left)
        return 0.5 * (logp[0] - logp[1])


def whitened_terms(residual, phi, found: Regressions) -> tuple[TensorVariable, TensorVariable]:
    """Residual (n,) and features (n, r), whitened under S; both in the order of the blocks."""
    return (vecchia_whiten(residual[:, None], *found)[:, 0], vecchia_whiten(phi, *found))
