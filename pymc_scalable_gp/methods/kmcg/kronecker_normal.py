"""Normal vectors on a grid, whose covariance is a Kronecker product plus noise."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal, white
from pymc_scalable_gp.linops.structured import Kronecker
from pymc_scalable_gp.ops.kronecker_logp import kronecker_logp


@dataclass(frozen=True, eq=False)
class KroneckerNormal(StructuredNormal):
    """``N(mean, K_1 (x) K_2 (x) ... + noise I)`` on a grid, last axis fastest."""

    factors: tuple[TensorVariable, ...]
    noise: TensorVariable

    def draw(self, rng, size):
        """By roots of the factors from their eigenvectors, which need no jitter."""
        n = self.mean.shape[0]
        next_rng, (z, own) = white(rng, size, (n,), (n,))
        smooth = Kronecker([root_of(K) for K in self.factors]).matmat(z.reshape((-1, n)).T)
        return next_rng, self.mean + smooth.T.reshape(z.shape) + pt.sqrt(self.noise) * own

    def logp(self, value):
        """By the factors' eigenvectors."""
        shape = [K.type.shape[0] for K in self.factors]
        return kronecker_logp(self.factors, self.noise, (value - self.mean).reshape(shape))

    def solve(self, values):
        """By the factors' eigenvectors; NaN where the covariance is not positive definite."""
        spread, turned = pt.ones(1), []
        for K in self.factors:
            lengths, vectors = pt.linalg.eigh(K)
            turned.append(pt.specify_shape(vectors, K.type.shape))
            spread = (spread[:, None] * lengths).ravel()
        turn, spread = Kronecker(turned), spread + self.noise
        spread = pt.switch(spread > 0.0, spread, np.nan)
        return turn.matmat(turn.T.matmat(values) / spread[:, None])


def root_of(K):
    """A square root of a covariance matrix, whatever its rank."""
    values, vectors = pt.linalg.eigh(K)
    root = vectors * pt.sqrt(pt.maximum(values, 0.0))
    return pt.specify_shape(root, K.type.shape)
