"""A PyMC distribution for vectors with low-rank plus diagonal covariance."""

from functools import partial

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import Continuous, SymbolicRandomVariable
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.logprob.abstract import _logprob
from pymc.pytensorf import normalize_rng_param
from pytensor.graph.basic import Constant
from pytensor.tensor.random.utils import normalize_size_param

from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp


class LowRankNormalRV(SymbolicRandomVariable):
    """Random graph of :class:`LowRankNormal`."""

    _print_name = ("LowRankNormal", "\\operatorname{LowRankNormal}")

    @classmethod
    def rv_op(
        cls,
        mu,
        phi,
        weights,
        noise,
        kdiag,
        logdet,
        *,
        approx="DTC",
        shortcut=None,
        rng=None,
        size=None,
    ):
        """Build the graph; `noise` is a variance, scalar or (n,); a `logdet` of NaN is not used."""
        params = [pt.as_tensor(p) for p in (mu, phi, weights, noise, kdiag, logdet)]
        mu, phi, weights, noise, kdiag, _logdet = params
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        batch = () if rv_size_is_none(size) else tuple(size)
        scaled = _scaled(phi, weights)
        variance = noise
        if approx == "FITC":
            variance = noise + pt.maximum(kdiag - (scaled**2).sum(axis=-1), 0.0)
        rank = weights.shape[-1]
        next_rng, z = pt.random.normal(size=(*batch, rank), rng=rng, return_next_rng=True)
        next_rng, e = pt.random.normal(
            size=(*batch, phi.shape[-2]), rng=next_rng, return_next_rng=True
        )
        draws = mu + z @ scaled.T + pt.sqrt(variance) * e
        signatures = "(r)" if weights.ndim == 1 else "(r,k)", "(n)" if noise.ndim else "()"
        op = cls(
            inputs=[rng, size, *params],
            outputs=[next_rng, draws],
            extended_signature=f"[rng],[size],(n),(n,r),{','.join(signatures)},(n),()->[rng],(n)",
        )
        op.approx, op.shortcut = approx, shortcut
        op.rv_op = partial(cls.rv_op, approx=approx, shortcut=shortcut)  # used when resized
        return op(rng, size, *params)


def _scaled(phi, weights):
    """Features times a root of their coefficients' prior covariance."""
    return phi * pt.sqrt(weights) if weights.ndim == 1 else phi @ weights


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
    weights : tensor, shape (r,) or (r, k), optional
        Prior variances of the features' coefficients, or a matrix L with prior covariance ``L L'``;
        1 when left out.
    kdiag : tensor, shape (n,), optional
        Prior variance ``k(x_i, x_i)``, needed by "FITC" and "VFE".
    logdet : tensor, scalar, optional
        Log determinant of the covariance that the features approximate, for ``logp`` to use in place
        of theirs, such as `ops.stochastic_logdet`; with "DTC" only.
    approx : {"DTC", "FITC", "VFE"}
        As in `pm.gp.MarginalApprox`. Under "VFE" ``logp`` is the collapsed lower bound: the
        density minus ``sum_i max(k_i - sum_j w_j Phi_ij^2, 0) / (2 sigma_i^2)``.

    Raises
    ------
    ValueError
        For an unknown `approx`, or when `kdiag` is missing where it is needed.

    Notes
    -----
    Draws cost O(n r). A covariance that cannot be factorised gives ``logp = nan``, which samplers
    reject. Missing values (NaN) in `observed` are not imputed.
    """

    rv_type = LowRankNormalRV
    rv_op = LowRankNormalRV.rv_op

    @classmethod
    def dist(cls, mu, phi, sigma, *, weights=None, kdiag=None, logdet=None, approx="DTC", **kwargs):
        """Distribution outside a model; parameters as in the class."""
        if approx not in ("DTC", "FITC", "VFE"):
            raise ValueError(f"approx must be 'DTC', 'FITC' or 'VFE', got {approx!r}")
        if kdiag is None and approx != "DTC":
            raise ValueError(f"approx={approx!r} needs kdiag, the prior variances k(x_i, x_i)")
        if logdet is not None and approx != "DTC":
            raise ValueError(f"logdet goes with approx='DTC', got {approx!r}")
        logdet = pt.constant(np.nan) if logdet is None else pt.as_tensor(logdet)
        phi = pt.as_tensor(phi)
        ones = pt.ones_like(phi[..., 0])
        weights = pt.ones_like(phi[..., 0, :]) if weights is None else pt.as_tensor(weights)
        kdiag = pt.zeros_like(ones) if kdiag is None else pt.as_tensor(kdiag)
        noise = pt.square(pt.as_tensor(sigma))
        mu = pt.as_tensor(mu)
        mu = (ones * mu if mu.ndim == 0 else mu).astype("float64")
        return super().dist([mu, phi, weights, noise, kdiag, logdet], approx=approx, **kwargs)

    @staticmethod
    def support_point(rv, rng, size, mu, *_parameters):
        """Mean."""
        return pt.full_like(rv, mu)


@_logprob.register(LowRankNormalRV)
def lowrank_normal_logprob(op, values, rng, size, mu, phi, weights, noise, kdiag, logdet, **kwargs):
    """Log density (or collapsed bound) of one vector."""
    (value,) = values
    if value.ndim != 1:
        raise NotImplementedError("LowRankNormal's logp takes one vector at a time")
    logdet = None if isinstance(logdet, Constant) and np.isnan(logdet.data) else logdet
    if op.shortcut is not None:
        logp = op.shortcut.density(value, mu, phi, weights, noise, logdet)
        if logp is not None:
            return logp
    if weights.ndim == 2:
        phi, weights = _scaled(phi, weights), None

    def density(residual):
        return lowrank_logp(phi, noise, residual, weights=weights, kdiag=kdiag, approx=op.approx)[0]

    residual = value - mu
    logp = density(residual)
    if logdet is None:
        return logp
    # log p(e) - log p(0) is the quadratic form.
    return (
        logp
        - density(pt.zeros_like(residual))
        - 0.5 * (logdet + value.shape[0] * np.log(2.0 * np.pi))
    )
