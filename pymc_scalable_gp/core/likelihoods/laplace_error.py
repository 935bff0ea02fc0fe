"""The error of Laplace's approximation to the evidence, from draws of the function."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.utils.compiled import compiled
from pymc_scalable_gp.utils.graphs import fixed_shared

PAIRS = 64
LOG_2PI = float(np.log(2.0 * np.pi))


def log_ratios(laplace) -> TensorVariable:
    r"""Log weights (2 s,) of s antithetic pairs of functions, drawn at the mode: see :func:`log_mean`.

    With f0 from the prior and e from the pseudo-targets' noise, ``f - V S^-1 (f0 + e - mu) + e`` and its
    mirror image at the mode are draws of the function given the pseudo-targets, and weigh
    ``sum_i r_i(f) - r_i(mode)``, ``r_i(f) = log p(y_i | f) - log N(t_i; f, v_i)``. A function at which
    the likelihood is NaN, as where it overflows, weighs nothing.

    Raises NotImplementedError for likelihoods by products.
    """
    mode, y, rows = laplace.mode, laplace.y.tensor, laplace.rows
    t, v = laplace.pseudo_targets
    normal = laplace.inner.normal(v)
    generator = pytensor.shared(np.random.default_rng(0))
    generator, drawn = laplace.prior_function.draw(generator, pt.constant([PAIRS]))
    _, white = pt.random.normal(size=(PAIRS, y.shape[0]), rng=generator, return_next_rng=True)
    drawn, white = _fixed([drawn, white], laplace.model)
    noise = pt.sqrt(v) * white
    moved = v * normal.solve((drawn - normal.mean + noise).T).T - noise

    def ratios(functions):
        """Sums over rows (s,) of ``r_i``."""
        logp = rows.logp_of(functions, y)
        return (logp + 0.5 * (LOG_2PI + pt.log(v) + (t - functions) ** 2 / v)).sum(axis=1)

    found = pt.concatenate([ratios(mode + moved), ratios(mode - moved)])
    return pt.switch(pt.isnan(found), -np.inf, found) - ratios(mode[None])


def log_mean(found: TensorVariable) -> TensorVariable:
    """Log of the mean weight: the log evidence, less Laplace's approximation to it."""
    return pt.logsumexp(found) - pt.log(found.shape[0])


def _fixed(outputs, model) -> list[TensorVariable]:
    """Graphs with numbers in place of their standard normal variables: one function of the parameters."""
    known = set(model.named_vars.values())
    random = [
        v
        for v in ancestors(outputs, blockers=known)
        if v not in known and v.owner is not None and isinstance(v.owner.op, RandomVariable)
        and v is v.owner.outputs[1]
    ]  # fmt: skip
    values = compiled([], random)()
    fixed = {v: fixed_shared(value).astype(v.dtype) for v, value in zip(random, values, strict=True)}
    return graph_replace(outputs, fixed)
