"""Parts of a sum of GPs whose residuals are one under neighbours."""

from collections.abc import Sequence
from functools import reduce
from operator import add

import pytensor.tensor as pt

from pymc_scalable_gp.core.features.feature_map import SumMap, side_by_side


class PartsMap(SumMap):
    r"""Features and kernel of the sum f of some parts, and the kernel of the others.

    Targets hold all parts, ``y = f + g + noise``, and what the features miss of f and g is independent:
    with R and Q their residual kernels and D the noise, a new row of f has the mean and variance

    .. math:: \phi_*^\top z + a^\top (e_N - \Phi_N z), \qquad R_{**} - a^\top R_{N*}, \qquad
              a = (R + Q + D)_{NN}^{-1} R_{N*},

    given its neighbours' residuals e and the coefficients z of all parts, of which :math:`\phi_*` has
    zeros for those of g. `total` and `kernels` are those of all parts, of which `places`, not all, are
    parts of f.
    """

    def __init__(self, total: SumMap, kernels: Sequence, places: Sequence[int]):
        super().__init__(total.parts)
        self.places = frozenset(places)
        self.cov_func = reduce(add, [kernels[i] for i in places])
        self.rest = reduce(add, [k for i, k in enumerate(kernels) if i not in self.places])

    def features(self, X):
        """Those of f, and zeros for those of g."""
        return side_by_side([
            part.features(X) if i in self.places else pt.zeros((X.shape[0], part.rank))
            for i, part in enumerate(self.parts)
        ])  # fmt: skip

    def kernel_diag(self, X):
        """Prior variances of f."""
        return sum(self.parts[i].kernel_diag(X) for i in self.places)
