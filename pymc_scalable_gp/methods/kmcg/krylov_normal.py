"""Observed variable whose features are coordinates in a Krylov basis that starts at the residual."""

from functools import partial

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import Continuous, SymbolicRandomVariable
from pymc.logprob.abstract import _logprob
from pymc.pytensorf import normalize_rng_param
from pytensor.raise_op import Assert
from pytensor.tensor.random.utils import normalize_size_param

from pymc_scalable_gp.core.likelihoods.lowrank_normal import draw_low_rank
from pymc_scalable_gp.core.likelihoods.summaries import present_value
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.stacked_product import product

_LOG_2PI = np.log(2.0 * np.pi)
# The first basis vector is the residual's direction to this accuracy, where it belongs to it.
_ALIGNED = 1e-6


class KrylovNormalRV(SymbolicRandomVariable):
    """Random graph of :class:`KrylovNormal`."""

    _print_name = ("KrylovNormal", "\\operatorname{KrylovNormal}")

    @classmethod
    def rv_op(cls, mu, Q, A, noise, *logdet, targets=None, mutable=False, rng=None, size=None):
        """Build the graph; `noise` is a variance."""
        params = [pt.as_tensor(p) for p in (mu, Q, A, noise, *logdet)]
        mu, Q, A, noise, *_ = params
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        next_rng, draws = draw_low_rank(mu, product(Q, A), noise, rng, size)
        shapes = ["(n)", "(n,k)", "(k,p)", "()"] + ["()"] * len(logdet)
        op = cls(
            inputs=[rng, size, *params],
            outputs=[next_rng, draws],
            extended_signature=f"[rng],[size],{','.join(shapes)}->[rng],(n)",
        )
        op.targets, op.mutable = targets, mutable
        op.rv_op = partial(cls.rv_op, targets=targets, mutable=mutable)  # used when resized
        return op(rng, size, *params)


class KrylovNormal(Continuous):
    r"""``N(mu, Q A A' Q' + noise I)`` with Q orthonormal, in the coordinates ``q = Q'(y - mu)``.

    .. math:: \log p = \log N(q \mid 0, A A^\top + \sigma^2 I)
        - \tfrac12 \left( (n - P - 1) \log(2 \pi \sigma^2) + \|e - Q q\|^2 / \sigma^2 \right)

    For the targets that the basis was made of, ``q = |e| e_1`` and nothing is left. A given log
    determinant takes the place of the features'.

    Parameters
    ----------
    mu : tensor, shape (n,)
        Mean.
    Q : tensor, shape (n, P + 1)
        Basis.
    A : tensor, shape (P + 1, P)
        Coordinates of the features.
    sigma : tensor, scalar
        Noise standard deviation.
    logdet : tensor, scalar, or None
        Log determinant of the exact covariance, such as `ops.stochastic_logdet` estimates it.
    targets : array, shape (n,), optional
        The targets less whose mean the first column of Q is made of.
    mutable : bool
        Whether the data may be replaced by others, which the basis then does not start at. That is
        checked at each evaluation and refused; a residual that is not finite gives NaN.
    """

    rv_type = KrylovNormalRV
    rv_op = KrylovNormalRV.rv_op

    @classmethod
    def dist(cls, mu, Q, A, sigma, logdet=None, *, targets=None, mutable=False, **kwargs):
        """Distribution outside a model; parameters as in the class."""
        params = [mu, Q, A, pt.square(pt.as_tensor(sigma)), *([] if logdet is None else [logdet])]
        return super().dist(params, targets=targets, mutable=mutable, **kwargs)

    @staticmethod
    def support_point(rv, rng, size, mu, *_parameters):
        """Mean."""
        return pt.full_like(rv, mu)


@_logprob.register(KrylovNormalRV)
def krylov_normal_logprob(op, values, rng, size, mu, Q, A, noise, *logdet, **kwargs):
    """Log density of one vector."""
    (value,) = values
    if value.ndim != 1:
        raise NotImplementedError("KrylovNormal's logp takes one vector at a time")
    residual = value - mu
    length = pt.sqrt((residual**2).sum())
    aligned = op.targets is not None and np.array_equal(present_value(value), op.targets)
    if aligned:
        projected, rest = pt.concatenate([length[None], pt.zeros(A.shape[0] - 1)]), 0.0
    else:
        projected = product(Q, residual, transpose_a=True)
        rest = ((residual - product(Q, projected)) ** 2).sum()
    outside = value.shape[0] - A.shape[0]
    constant = outside * (_LOG_2PI + pt.log(noise))

    def density(projected, rest):
        return lowrank_logp(A, noise, projected).logp - 0.5 * (constant + rest / noise)

    logp = density(projected, rest)
    if logdet:  # log p(e) - log p(0) is the quadratic form
        nothing = density(pt.zeros_like(projected), 0.0)
        logp = logp - nothing - 0.5 * (logdet[0] + value.shape[0] * _LOG_2PI)
    if not (aligned and op.mutable):
        return logp
    message = "the targets were replaced by others than the inputs' Krylov basis starts at"
    same = pt.le((1.0 - _ALIGNED) * length, (Q[:, 0] * residual).sum())
    return Assert(message)(logp, same | pt.isnan(length) | pt.isinf(length))
