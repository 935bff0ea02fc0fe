"""Normal vectors whose low-rank part is given in a Krylov basis that starts at the residual."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.likelihoods.lowrank import draw_low_rank
from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.checks import Refuse
from pymc_scalable_gp.utils.graphs import present_value
from pymc_scalable_gp.utils.warn import warn

_LOG_2PI = np.log(2.0 * np.pi)
# How closely the first basis vector must follow the residual that it was made from.
_ALIGNED = 1e-6


@dataclass(frozen=True, eq=False)
class KrylovNormal(StructuredNormal):
    r"""``N(mean, Q A A' Q' + noise I)`` with Q orthonormal, in the coordinates ``q = Q'(y - mean)``.

    ``log N(q; 0, A A' + noise I) - ((n - P - 1) log(2 pi noise) + |e - Q q|^2 / noise) / 2``: for the
    targets that the basis was made from, ``q = |e| e_1`` and ``e - Q q`` is zero, and A may be given again,
    without what rounding adds to it. A given log determinant takes the place of the features'. Where the
    data are `mutable`, an error is raised at each evaluation at which the basis does not start at the
    present residual; a residual that is not finite gives NaN.
    """

    Q: TensorVariable  # basis (n, P + 1)
    A: TensorVariable  # coordinates (P + 1, P) of the features
    noise: TensorVariable  # variance, a scalar
    # Of the exact covariance, such as `ops.stochastic_logdet` estimates it.
    logdet: TensorVariable | None = None
    # Those (n,) that the basis was made from: Q's first column is the direction of their residual.
    targets: np.ndarray | None = None
    own: TensorVariable | None = None  # A in the density of those targets
    mutable: bool = False

    def draw(self, rng, size):
        """In O(n P)."""
        return draw_low_rank(self.mean, product(self.Q, self.A), self.noise, rng, size)

    def logp(self, value):
        """In the coordinates q; it warns of other targets than the basis starts at."""
        Q, noise, residual, count = self.Q, self.noise, value - self.mean, self.A.shape[0]
        length = pt.sqrt((residual**2).sum())
        known = present_value(value)
        aligned = self.targets is not None and np.array_equal(known, self.targets)
        if not (aligned or self.mutable or known is None or self.targets is None):
            warn(
                "the steps start at the targets that the model was written with, and explain others less, "
                "as those of pm.observe: write the model with these"
            )
        A = self.own if aligned and self.own is not None else self.A
        if aligned:
            projected, rest = pt.concatenate([length[None], pt.zeros(count - 1)]), 0.0
        else:
            projected = product(Q, residual, transpose_a=True)
            rest = ((residual - product(Q, projected)) ** 2).sum()
        logp = lowrank_logp(A, noise, projected).logp - 0.5 * rest / noise
        if self.logdet is None:
            logp = logp - 0.5 * (value.shape[0] - count) * (_LOG_2PI + pt.log(noise))
        else:  # log p(e) - log p(0) is the quadratic form
            logp = logp - lowrank_logp(A, noise, pt.zeros_like(projected)).logp
            logp = logp - 0.5 * (self.logdet + value.shape[0] * _LOG_2PI)
        if not (aligned and self.mutable):
            return logp
        message = "the targets were replaced, and the Krylov basis starts at other ones"
        same = pt.le((1.0 - _ALIGNED) * length, (Q[:, 0] * residual).sum())
        return Refuse(message)(logp, same | pt.isnan(length) | pt.isinf(length))
