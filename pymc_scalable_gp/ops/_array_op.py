"""Ops of which one source does for NumPy and JAX."""

from abc import abstractmethod

import numpy as np

from pymc_scalable_gp.ops._base import GufuncOp, store
from pymc_scalable_gp.ops._jax import jnp, register_jax


class ArrayOp(GufuncOp):
    """An Op whose :meth:`values` take NumPy's arrays or JAX's, and are its Python and its JAX form."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        register_jax(cls, cls.pullback is not GufuncOp.pullback)(
            lambda op: lambda *inputs: op.values(jnp, *inputs)
        )

    @abstractmethod
    def values(self, xp, *inputs):
        """The output, or a tuple of several, where `xp` is NumPy or ``jax.numpy``."""

    def perform(self, node, inputs, output_storage):
        store(output_storage, self.values(np, *inputs))


def scatter(out, places, values):
    """Rows added to `out`, in which places may repeat: to NumPy's array itself, or to a copy of JAX's."""
    if isinstance(out, np.ndarray):
        np.add.at(out, places, values)
        return out
    return out.at[places].add(values)
