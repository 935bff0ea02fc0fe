"""Observed variable of rows that are known by their statistics alone."""

from functools import partial

import pytensor.tensor as pt
from pymc.distributions.distribution import Continuous, SymbolicRandomVariable
from pymc.logprob.abstract import _logprob
from pymc.pytensorf import normalize_rng_param
from pytensor.tensor.random.utils import normalize_size_param

from pymc_scalable_gp.core.likelihoods.lowrank_normal import draw_low_rank
from pymc_scalable_gp.core.likelihoods.summaries import RowSummary
from pymc_scalable_gp.core.likelihoods.summarized_normal import scaled
from pymc_scalable_gp.utils.graphs import fixed_shared


class StatisticsNormalRV(SymbolicRandomVariable):
    """Random graph of :class:`StatisticsNormal`."""

    _print_name = ("StatisticsNormal", "\\operatorname{StatisticsNormal}")

    @classmethod
    def rv_op(cls, beta, designs, factor, weights, noise, *, summary, rng=None, size=None):
        """Build the graph."""
        params = [pt.as_tensor(p) for p in (beta, designs, factor, weights, noise)]
        beta, designs, factor, weights, noise = params
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        mean = pt.dot(designs, beta)
        next_rng, draws = draw_low_rank(mean, scaled(factor, weights), noise, rng, size)
        shapes = f"(h),(q,h),(q,k),{'(k)' if weights.ndim == 1 else '(k,r)'},()"
        op = cls(
            inputs=[rng, size, *params],
            outputs=[next_rng, draws],
            extended_signature=f"[rng],[size],{shapes}->[rng],(q)",
        )
        op.summary = summary
        op.rv_op = partial(cls.rv_op, summary=summary)  # used when resized
        return op(rng, size, *params)


class StatisticsNormal(Continuous):
    r"""Coordinates ``U'y`` of n targets in the basis' span: ``N(U'H beta, S V' W V S + noise I)``.

    The density is that of all n targets, which are known by their statistics.

    Parameters
    ----------
    beta : tensor, shape (h,)
        Coefficients of the mean.
    weights : tensor, shape (k,) or (k, r)
        Prior variances of the basis' coefficients, or a matrix L with prior covariance ``L L'``.
    sigma : tensor, scalar
        Noise standard deviation.
    summary : RowSummary
    """

    rv_type = StatisticsNormalRV
    rv_op = StatisticsNormalRV.rv_op

    @classmethod
    def dist(cls, beta, weights, sigma, *, summary: RowSummary, **kwargs):
        """Distribution outside a model; parameters as in the class."""
        noise = pt.square(pt.as_tensor(sigma))
        designs = fixed_shared(summary.projected[:, :-1])
        factor = fixed_shared(summary.factor)
        return super().dist([beta, designs, factor, weights, noise], summary=summary, **kwargs)

    @staticmethod
    def support_point(rv, *_parameters):
        """The origin."""
        return pt.zeros_like(rv)


@_logprob.register(StatisticsNormalRV)
def statistics_normal_logprob(
    op, values, rng, size, beta, designs, factor, weights, noise, **kwargs
):
    """Log density of all targets, whose coordinates are the value."""
    (value,) = values
    if value.ndim != 1:
        raise NotImplementedError("StatisticsNormal's logp takes one vector at a time")
    return op.summary.logp(weights, noise, beta, value)
