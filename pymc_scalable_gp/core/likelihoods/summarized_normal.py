"""Observed variable of rows that were summarised: a density that looks at them no more."""

from functools import partial

import pytensor.tensor as pt
from pymc.distributions.distribution import Continuous, SymbolicRandomVariable
from pymc.logprob.abstract import _logprob
from pymc.pytensorf import normalize_rng_param
from pytensor.tensor.random.utils import normalize_size_param

from pymc_scalable_gp.core.likelihoods.lowrank_normal import draw_low_rank
from pymc_scalable_gp.core.likelihoods.summaries import RowSummary, Snapshot, present_value, renewed
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.warn import warn


class SummarizedNormalRV(SymbolicRandomVariable):
    """Random graph of :class:`SummarizedNormal`."""

    _print_name = ("SummarizedNormal", "\\operatorname{SummarizedNormal}")

    @classmethod
    def rv_op(cls, mu, basis, weights, noise, *X, summary, snapshot, again, rng=None, size=None):
        """Build the graph; X holds the inputs where they can be replaced."""
        params = [pt.as_tensor(p) for p in (mu, basis, weights, noise, *X)]
        mu, basis, weights, noise, *_ = params
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        next_rng, draws = draw_low_rank(mu, scaled(basis, weights), noise, rng, size)
        shapes = ["(n)", "(n,k)", "(k)" if weights.ndim == 1 else "(k,r)", "()"] + ["(n,d)"] * len(
            X
        )
        op = cls(
            inputs=[rng, size, *params],
            outputs=[next_rng, draws],
            extended_signature=f"[rng],[size],{','.join(shapes)}->[rng],(n)",
        )
        op.summary, op.snapshot, op.again = summary, snapshot, again
        made = {"summary": summary, "snapshot": snapshot, "again": again}
        op.rv_op = partial(cls.rv_op, **made)  # used when resized
        return op(rng, size, *params)


def scaled(basis, weights):
    """Basis times a root of its coefficients' prior covariance: ``W^1/2``, or a matrix L itself."""
    return basis * pt.sqrt(weights) if weights.ndim == 1 else product(basis, weights)


class SummarizedNormal(Continuous):
    r"""``N(mu, B W B' + noise I)`` of targets whose rows were summarised in the basis B.

    The density of those targets comes from the summary, O(r^3) or O(r) whatever n; where `pm.set_data`
    replaced them, from one that is made again when the density is built. That of other values, and
    draws, come from the rows.

    Parameters
    ----------
    mu : tensor, shape (n,)
        Mean.
    basis : tensor, shape (n, k)
        Functions at the rows: used for draws, and for targets that were not summarised.
    weights : tensor, shape (k,) or (k, r)
        Prior variances of the basis' coefficients, or a matrix L with prior covariance ``L L'``.
    sigma : tensor, scalar
        Noise standard deviation.
    X : tensor, shape (n, d), or None
        Inputs that `pm.set_data` may replace.
    summary : RowSummary
    snapshot : Snapshot
        The data that were summarised.
    again : callable
        ``again(X, y)`` makes the summary of other data, or None where there is none.

    Warns
    -----
    UserWarning
        When the density is built for inputs that have no summary.
    """

    rv_type = SummarizedNormalRV
    rv_op = SummarizedNormalRV.rv_op

    @classmethod
    def dist(
        cls, mu, basis, weights, sigma, X=None, *, summary: RowSummary, snapshot: Snapshot, again,
        **kwargs,
    ):  # fmt: skip
        """Distribution outside a model; parameters as in the class."""
        params = [mu, basis, weights, pt.square(pt.as_tensor(sigma)), *([] if X is None else [X])]
        return super().dist(params, summary=summary, snapshot=snapshot, again=again, **kwargs)

    @staticmethod
    def support_point(rv, rng, size, mu, *_parameters):
        """Mean."""
        return pt.full_like(rv, mu)


@_logprob.register(SummarizedNormalRV)
def summarized_normal_logprob(op, values, rng, size, mu, basis, weights, noise, *inputs, **kwargs):
    """Log density of one vector."""
    (value,) = values
    if value.ndim != 1:
        raise NotImplementedError("SummarizedNormal's logp takes one vector at a time")
    X = inputs[0] if inputs else None
    if present_value(value) is not None and (X is None or present_value(X) is not None):
        summary, snapshot = renewed(op.summary, op.snapshot, op.again, X, value)
        if summary is not None:
            return snapshot.guard(summary.logp(weights, noise), X, value)
        warn(
            "X was replaced by inputs beyond the range that the GP was built on, where its features have "
            "no fixed basis: every evaluation now costs O(n r^2). Build the model again with the new data"
        )
    return lowrank_logp(scaled(basis, weights), noise, value - mu).logp
