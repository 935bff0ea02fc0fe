"""A PyMC distribution for vectors with low-rank plus diagonal covariance."""

from functools import partial

import pytensor.tensor as pt
from pymc.distributions.distribution import Continuous, SymbolicRandomVariable
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.logprob.abstract import _logprob
from pymc.pytensorf import normalize_rng_param
from pytensor.tensor.random.utils import normalize_size_param

from pymc_scalable_gp.ops.lowrank_logp import APPROXIMATIONS, lowrank_logp
from pymc_scalable_gp.utils.checks import check_choice, check_keywords

# What `Distribution.dist` takes, and the random graph.
_KEYWORDS = ("shape", "size", "rng", "return_next_rng")


class LowRankNormalRV(SymbolicRandomVariable):
    """Random graph of :class:`LowRankNormal`."""

    _print_name = ("LowRankNormal", "\\operatorname{LowRankNormal}")

    @classmethod
    def rv_op(cls, mu, phi, weights, noise, kdiag, *, approx="DTC", rng=None, size=None):
        """Build the graph; `noise` is a variance, scalar or (n,)."""
        params = [pt.as_tensor(p) for p in (mu, phi, weights, noise, kdiag)]
        mu, phi, weights, noise, kdiag = params
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        scaled, variance = phi * pt.sqrt(weights), noise
        if approx == "FITC":
            variance = noise + pt.maximum(kdiag - (scaled**2).sum(axis=-1), 0.0)
        next_rng, draws = draw_low_rank(mu, scaled, variance, rng, size)
        noise_shape = "(n)" if noise.ndim else "()"
        op = cls(
            inputs=[rng, size, *params],
            outputs=[next_rng, draws],
            extended_signature=f"[rng],[size],(n),(n,r),(r),{noise_shape},(n)->[rng],(n)",
        )
        op.approx = approx
        op.rv_op = partial(cls.rv_op, approx=approx)  # used when resized
        return op(rng, size, *params)


def draw_low_rank(mu, factor, variance, rng, size):
    """Next generator, and draws of ``N(mu, factor factor' + diag(variance))`` in O(n r)."""
    batch = () if rv_size_is_none(size) else tuple(size)
    rank, n = factor.shape[-1], factor.shape[-2]
    next_rng, z = pt.random.normal(size=(*batch, rank), rng=rng, return_next_rng=True)
    next_rng, e = pt.random.normal(size=(*batch, n), rng=next_rng, return_next_rng=True)
    return next_rng, mu + z @ factor.T + pt.sqrt(variance) * e


class LowRankNormal(Continuous):
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
        For an unknown `approx`, or when `kdiag` is missing where it is needed.

    See Also
    --------
    ops.lowrank_logp : Its log density, with posterior terms.

    Notes
    -----
    Draws cost O(n r). A covariance that cannot be factorised gives ``logp = nan``, which samplers
    reject. Missing values (NaN) in `observed` are not imputed.

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

    rv_type = LowRankNormalRV
    rv_op = LowRankNormalRV.rv_op

    @classmethod
    def dist(cls, mu, phi, sigma, *, weights=None, kdiag=None, approx="DTC", **kwargs):
        """Distribution outside a model; parameters as in the class."""
        check_choice("approx", approx, APPROXIMATIONS)
        check_keywords("LowRankNormal", kwargs, _KEYWORDS, {"noise": "give sigma=, its root"})
        if kdiag is None and approx != "DTC":
            raise ValueError(f"approx={approx!r} needs kdiag, the prior variances k(x_i, x_i)")
        phi = pt.as_tensor(phi)
        ones = pt.ones_like(phi[..., 0])
        weights = pt.ones_like(phi[..., 0, :]) if weights is None else pt.as_tensor(weights)
        kdiag = pt.zeros_like(ones) if kdiag is None else pt.as_tensor(kdiag)
        noise = pt.square(pt.as_tensor(sigma))
        mu = pt.as_tensor(mu)
        mu = (ones * mu if mu.ndim == 0 else mu).astype("float64")
        return super().dist([mu, phi, weights, noise, kdiag], approx=approx, **kwargs)

    @staticmethod
    def support_point(rv, rng, size, mu, *_parameters):
        """Mean."""
        return pt.full_like(rv, mu)


@_logprob.register(LowRankNormalRV)
def lowrank_normal_logprob(op, values, rng, size, mu, phi, weights, noise, kdiag, **kwargs):
    """Log density (or collapsed bound) of one vector."""
    (value,) = values
    if value.ndim != 1:
        raise NotImplementedError("LowRankNormal's logp takes one vector at a time")
    return lowrank_logp(phi, noise, value - mu, weights=weights, kdiag=kdiag, approx=op.approx).logp
