"""A matrix that gradients hold fixed."""

import numpy as np

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._jax import jax, jax_form
from pymc_scalable_gp.ops._numba import one_source


class Held(GufuncOp):
    """Value of `held`."""

    gufunc_signature = "(n,m)->(n,m)"

    def connection_pattern(self, node):
        """Nothing flows back."""
        return [[False]]


@one_source(Held)
def _copy(x):
    return np.copy(x)


@jax_form(Held, differentiable=False)
def _stopped(x):
    return jax.lax.stop_gradient(x)


def held(x):
    """`x` (n, m) itself, as a constant for `pytensor.grad`.

    PyMC rewrites the graphs of its variables' parameters, and `pytensor.gradient.disconnected_grad` does
    not outlive that.
    """
    return Held()(x)
