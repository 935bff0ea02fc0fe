"""Normal vectors with low-rank plus diagonal covariance, as a PyMC distribution too."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import check_sigma
from pymc_scalable_gp.core.likelihoods.structured_normal import (
    NormalVector,
    StructuredNormal,
    product_of,
    white,
)
from pymc_scalable_gp.ops.lowrank_logp import APPROXIMATIONS, lowrank_logp
from pymc_scalable_gp.utils.checks import check_choice, check_keywords

# What `Distribution.dist` takes, and the random graph.
_KEYWORDS = ("shape", "size", "rng", "return_next_rng")


@dataclass(frozen=True, eq=False)
class LowRank(StructuredNormal):
    """``N(mean, phi W phi' + D)``, as :class:`LowRankNormal`; `noise` is a variance."""

    phi: TensorVariable
    noise: TensorVariable
    weights: TensorVariable | None = None
    kdiag: TensorVariable | None = None
    approx: str = "DTC"

    label: ClassVar[str] = "LowRankNormal"

    def draw(self, rng, size):
        """Draw in O(n r)."""
        scaled = self.phi if self.weights is None else self.phi * pt.sqrt(self.weights)
        return draw_low_rank(self.mean, scaled, self._variance(), rng, size)

    def _weighted(self):
        """``Phi W``."""
        return self.phi if self.weights is None else self.phi * self.weights

    def _variance(self):
        """D: the noise, and under "FITC" what the features leave unexplained."""
        if self.approx != "FITC":
            return self.noise
        return self.noise + pt.maximum(self.kdiag - (self._weighted() * self.phi).sum(axis=-1), 0.0)

    def _terms(self, residual):
        return lowrank_logp(
            self.phi, self.noise, residual, weights=self.weights, kdiag=self.kdiag,
            approx=self.approx,
        )  # fmt: skip

    def logp(self, value):
        """Log density; under "VFE" its collapsed lower bound."""
        return self._terms(value - self.mean).logp

    def product(self, left, right):
        """By one Gram matrix, which iterations share whose `right` stays; a refined solution of `left`."""
        found = self._terms(right)
        solved = _solved(self.phi, found, left)
        solved = solved + _solved(self.phi, found, left - self._times(solved))
        return product_of(left, right, (solved, found.alpha), self._times)

    def _times(self, v):
        """``(Phi W Phi' + D) v`` of a vector."""
        return self._weighted() @ (self.phi.T @ v) + self._variance() * v

    def solve(self, values):
        """``D^-1 (E - Phi P Phi' D^-1 E)``, with P the covariance of the coefficients given targets."""
        return _solved(self.phi, self._terms(pt.zeros_like(self.mean)), values.T).T


def _solved(phi, found, e):
    """``S^-1 e`` of vectors in the last axis, by terms of the density."""
    scaled = e / found.variance
    inner = ((scaled @ phi) @ found.root.T) @ found.root
    return scaled - (inner @ phi.T) / found.variance


def _fitting(name, value, letter, length, scalar=False):
    """A parameter as a vector of phi's `length`, or a scalar where one is taken; ValueError for others."""
    tensor = pt.as_tensor(value)
    shape = tensor.type.shape
    alike = tensor.ndim == 1 and (None in (length, *shape) or shape == (length,))
    if alike or (scalar and shape in ((), (1,))):
        return tensor
    either, number = "be a scalar or " * scalar, "" if length is None else f" = ({length},)"
    raise ValueError(f"{name} must {either}have shape ({letter},){number}, as phi, got {shape}")


def draw_low_rank(mean, factor, variance, rng, size):
    """Next generator, and draws of ``N(mean, factor factor' + diag(variance))`` in O(n r)."""
    n, rank = factor.shape
    next_rng, (z, e) = white(rng, size, (rank,), (n,))
    return next_rng, mean + z @ factor.T + pt.sqrt(variance) * e


class LowRankNormal(NormalVector):
    r"""Multivariate normal with covariance :math:`\Phi W \Phi^\top + D`, in O(n r^2).

    .. math::

        y \sim N(\mu,\; \Phi\,\mathrm{diag}(w)\,\Phi^\top + D), \qquad D_i = \sigma_i^2 + \delta_i

    with :math:`\delta_i = \max(k_i - \sum_j w_j\Phi_{ij}^2, 0)` for ``approx="FITC"``, else 0.

    Parameters
    ----------
    mu : tensor, scalar or shape (n,)
        Mean.
    phi : tensor, shape (n, r)
        Features.
    sigma : tensor, scalar or shape (n,)
        Noise standard deviation (positive).
    weights : tensor, shape (r,), optional
        Prior variances of the features' coefficients; 1 when left out.
    kdiag : tensor, shape (n,), optional
        Prior variance ``k(x_i, x_i)``, needed by "FITC" and "VFE".
    approx : {"DTC", "FITC", "VFE"}
        As in `pm.gp.MarginalApprox`. Under "VFE" ``logp`` is the collapsed lower bound: the
        density minus ``sum_i max(k_i - sum_j w_j Phi_ij^2, 0) / (2 sigma_i^2)``.

    Raises
    ------
    TypeError
        For an unknown keyword.
    ValueError
        For an unknown `approx`, `kdiag` missing where it is needed, a shape that does not fit, or a `sigma`
        that is known and not positive.

    See Also
    --------
    ops.lowrank_logp : Its log density, with posterior terms.

    Notes
    -----
    Draws cost O(n r). A covariance that cannot be factorised, or a `sigma` that is not positive, gives
    ``logp = nan``, which samplers reject. Missing values (NaN) in `observed` become free variables, as
    everywhere in PyMC.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> phi, y = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 0.5, -0.5])
    >>> low = sgp.LowRankNormal.dist(mu=0.0, phi=phi, sigma=0.5)
    >>> full = pm.MvNormal.dist(mu=np.zeros(3), cov=phi @ phi.T + 0.25 * np.eye(3))
    >>> print(pm.logp(low, y).eval().round(4), pm.logp(full, y).eval().round(4))
    -5.6638 -5.6638
    >>> pm.draw(low, draws=10).shape
    (10, 3)
    """

    rv_type = NormalVector.rv_type
    rv_op = NormalVector.rv_op

    @classmethod
    def dist(cls, mu, phi, sigma, *, weights=None, kdiag=None, approx="DTC", **kwargs):
        """Distribution outside a model; parameters as in the class."""
        check_choice("approx", approx, APPROXIMATIONS)
        check_keywords("LowRankNormal", kwargs, _KEYWORDS, {"noise": "give sigma=, its root"})
        if kdiag is None and approx != "DTC":
            raise ValueError(f"approx={approx!r} needs kdiag, the prior variances k(x_i, x_i)")
        phi = pt.as_tensor(phi)
        if phi.ndim != 2:
            raise ValueError(f"phi must have shape (n, r), got {phi.type.shape}")
        n, r = phi.type.shape
        mean = (pt.ones_like(phi[:, 0]) * _fitting("mu", mu, "n", n, scalar=True)).astype("float64")
        sigma = check_sigma(_fitting("sigma", sigma, "n", n, scalar=True), None)
        noise = pt.switch(sigma > 0.0, pt.square(sigma), np.nan)
        weights = None if weights is None else _fitting("weights", weights, "r", r)
        kdiag = None if kdiag is None else _fitting("kdiag", kdiag, "n", n)
        return super().dist(LowRank(mean, phi, noise, weights, kdiag, approx), **kwargs)
