"""The error of Laplace's approximation to the evidence, from draws of the function."""

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.likelihoods.laplace_mode import LOG_2PI


def log_ratios(laplace) -> TensorVariable:
    r"""Log weights (2 s,) of s antithetic pairs of functions near the posterior: see :func:`log_mean`.

    For the pseudo-targets t and noise variances v of :func:`around_mean`,

        p(y) = N(t; mu, S) E[prod_i p(y_i | f_i) / N(t_i; f_i, v_i)]

    under the function given these, of which the draws are. Divided by Laplace's approximation. A function
    at which the likelihood is NaN, as where it overflows, weighs nothing.
    """
    t, v, moved = laplace.around_mean
    normal, y = laplace.inner.normal(v), laplace.y.tensor
    mean = t - v * normal.solve((t - normal.mean)[:, None])[:, 0]
    functions = pt.concatenate([mean + moved, mean - moved])
    logp = laplace.rows.logp_of(functions, y)
    found = (logp + 0.5 * (LOG_2PI + pt.log(v) + (t - functions) ** 2 / v)).sum(axis=1)
    found = pt.switch(pt.isnan(found), -np.inf, found)
    return found + normal.logp(t) - laplace.logp()


def log_mean(found: TensorVariable) -> TensorVariable:
    """Log of the mean weight: the log evidence, less Laplace's approximation to it."""
    return pt.logsumexp(found) - pt.log(found.shape[0])
