"""What the Ops that regress blocks of rows on their neighbours share."""

from abc import abstractmethod

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type

from pymc_scalable_gp.ops import _vecchia_batches as batches
from pymc_scalable_gp.ops._base import GufuncOp, connected
from pymc_scalable_gp.ops._jax import jnp, register_jax
from pymc_scalable_gp.ops._numba import by_machine_code
from pymc_scalable_gp.ops._stationary import KindOp

# Of multiplications: less work is done in NumPy before anything is compiled, once per machine.
MUCH = 1e7


class ArrayOp(GufuncOp):
    """An Op whose :meth:`values` take NumPy's arrays or JAX's, and are its JAX form."""

    has_pullback = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        register_jax(cls, cls.has_pullback)(_values_of)

    @abstractmethod
    def values(self, xp, *inputs) -> tuple:
        """Outputs, where `xp` is NumPy or ``jax.numpy``."""

    def work(self, inputs) -> float:
        """Multiplications, roughly; from `MUCH` on, Python calls machine code."""
        return 0.0

    def perform(self, node, inputs, output_storage):
        if self.work(inputs) >= MUCH:
            by_machine_code(self, inputs, output_storage)
            return
        outputs = self.values(np, *inputs)
        for storage, value in zip(output_storage, outputs, strict=True):
            storage[0] = np.asarray(value)


def _values_of(op):
    """Function of JAX arrays."""

    def forward(*inputs):
        outputs = op.values(jnp, *inputs)
        return outputs if len(outputs) > 1 else outputs[0]

    return forward


class BlockOp(ArrayOp):
    """An Op on blocks of `block` rows, g."""

    __props__: tuple[str, ...] = ("block",)
    shared = ("block",)

    def lengths(self):
        """The length of a block."""
        return {"g": self.block}

    def work(self, inputs):
        """``b (k + g)^2 (r + k + g)``, for which NumPy takes longer than machine code."""
        at = dict(self.named_lengths(inputs))
        s = at["k"] + self.block
        return at["b"] * s**2 * (at["r"] + s)


class StationaryBlockOp(KindOp, BlockOp):
    """An Op on blocks of rows under a stationary kernel, which is computed on the way."""

    __props__ = ("kind", "block")
    moving = False  # whether the inputs have a gradient too

    def factor(self, xp, X, scale, variance, shape, phi, noise, neighbors, first):
        """Regressions of all blocks: see `_vecchia_batches.factor`."""

        def blocks_of(part, places):
            return variance * batches.local_kernel(self.kind, X, scale, shape, places, xp)[0]

        return batches.factor(blocks_of, phi, noise, neighbors, first, self.block, xp)

    def factor_grad(self, xp, X, scale, variance, shape, *rest):
        """Cotangents of the kernel's parameters, features and noise: see `_vecchia_batches.factor_grad`.

        Those of the inputs come first where they are `moving`.
        """

        def kernel_bar(places, M_bar):
            given = self.kind, X, scale, variance, shape, places, M_bar, xp
            moved = [batches.input_bars(*given)] if self.moving else []
            return [*moved, *batches.kernel_bars(*given)]

        parts, *rest = batches.factor_grad(kernel_bar, *rest, xp)
        return *map(sum, zip(*parts, strict=True)), *rest


class BlockFactor(BlockOp):
    """Regressions A, their covariances' roots L, and the neighbours' factors F.

    F serves the gradient, and has none itself.
    """

    differentiable_outputs = (0, 1)

    @abstractmethod
    def backward(self, inputs, made) -> list:
        """Cotangents of all inputs, from A, L, F and the cotangents of A and L."""

    def pullback(self, inputs, outputs, cotangents):
        """See :meth:`backward`."""
        if connected(cotangents[2]):
            raise ValueError(f"the factors F of {type(self).__name__} cannot be differentiated")
        pairs = list(zip(outputs[:2], cotangents[:2], strict=True))
        if not any(connected(g) for _, g in pairs):
            return [disconnected_type() for _ in inputs]
        bars = [g if connected(g) else pt.zeros_like(out) for out, g in pairs]
        return self.backward(inputs, [*outputs, *bars])
