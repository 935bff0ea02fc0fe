"""What the Ops that regress blocks of rows on their neighbours share."""

from abc import abstractmethod
from itertools import chain

import pytensor.tensor as pt

from pymc_scalable_gp.ops import _vecchia_batches as batches
from pymc_scalable_gp.ops._array_op import ArrayOp
from pymc_scalable_gp.ops._base import connected
from pymc_scalable_gp.ops._numba import by_machine_code
from pymc_scalable_gp.ops._stationary import kind_number

# Of multiplications: less work is done in NumPy before anything is compiled, once per machine.
MUCH = 1e7


class BlockOp(ArrayOp):
    """An Op on blocks of `block` rows, g."""

    __props__: tuple[str, ...] = ("block",)
    shared = ("block",)

    def lengths(self):
        """The length of a block."""
        return {"g": self.block}

    def sums(self):
        """Local rows s are the neighbours and the block."""
        return {"s": ("k", self.block)}

    def work(self, inputs) -> float:
        """Multiplications, roughly: ``b (k + g)^2 (r + k + g)``."""
        at = dict(self.named_lengths(inputs))
        s = at["k"] + self.block
        return at["b"] * s**2 * (at["r"] + s)

    def perform(self, node, inputs, output_storage):
        if self.work(inputs) >= MUCH:
            by_machine_code(self, inputs, output_storage)
        else:
            super().perform(node, inputs, output_storage)


class StationaryBlockOp(BlockOp):
    """An Op on blocks of rows under a sum of products of stationary kernels, computed on the way.

    `summands` are tuples of kinds, the factors of each product. The inputs have a gradient too where they
    are `moving`; else their cotangent has no rows.
    """

    __props__ = ("summands", "block", "moving")
    shared = __props__
    moving = False

    def options(self):
        """Kind and summand of each factor, the length of a block, and whether the inputs are moving."""
        return tuple((kind_number(kind), q) for kind, q in self.factors()), self.block, self.moving

    def factors(self) -> list[tuple[str, int]]:
        """Kind and summand of each factor."""
        return [(kind, q) for q, kinds in enumerate(self.summands) for kind in kinds]

    def lengths(self):
        """Numbers of factors t, of summands q, and of rows z of the inputs' cotangent if it has none."""
        known = super().lengths() | {"t": len(self.factors()), "q": len(self.summands)}
        return known if self.moving else known | {"z": 0}

    def sums(self):
        return super().sums() | ({"z": ("n", 0)} if self.moving else {})

    def fixed(self, inputs):
        """Whole numbers, and X, which is data unless it is `moving`."""
        return self.discrete if self.moving else (0, *self.discrete)

    def factor(self, xp, X, scale, variance, shape, rows, phi, noise, neighbors, first):
        """Regressions of all blocks: see `_vecchia_batches.factor`."""

        def blocks_of(part, places):
            return batches.local_kernel(self.factors(), X, scale, variance, shape, rows, places, xp)

        return batches.factor(blocks_of, phi, noise, neighbors, first, self.block, xp)

    def kernel_bar(self, xp, X, scale, variance, shape, rows):
        """Cotangents of inputs and kernel's parameters, from places and cotangents of the blocks there."""

        def bars(places, M_bar):
            X_bar, *found = batches.kernel_bars(
                self.factors(), X, scale, variance, shape, rows, places, M_bar, xp
            )
            return X_bar[: len(X) * self.moving], *found

        return bars

    def factor_grad(self, xp, X, scale, variance, shape, rows, *rest):
        """Cotangents of inputs, kernel's parameters, features and noise: see `_vecchia_batches`."""
        kernel_bar = self.kernel_bar(xp, X, scale, variance, shape, rows)
        parts, *rest = batches.factor_grad(kernel_bar, *rest, xp)
        return *map(sum, zip(*parts, strict=True)), *rest


def summed(kind, X, scale, variance, shape, rows) -> tuple:
    """Summands and parameters for a `StationaryBlockOp`: of one kernel, by its name, or as they are."""
    parameters = [pt.as_tensor(x) for x in (scale, variance, shape)]
    rows = pt.zeros((0, pt.as_tensor(X).shape[0])) if rows is None else pt.as_tensor(rows)
    # Gradients divide by factors: one of 0 is next to nothing more, whose square is 0 still.
    rows = rows + 1e-200 * pt.eq(rows, 0.0)
    if isinstance(kind, str):
        kind, parameters = ((kind,),), [x[None] for x in parameters]
    for each in chain(*kind):
        kind_number(each)
    return kind, *parameters, rows


class BlockFactor(BlockOp):
    """Regressions A, their covariances' roots L, and the neighbours' factors F.

    F serves the gradient, and has none itself.
    """

    differentiable_outputs = (0, 1)

    @abstractmethod
    def backward(self, inputs, made) -> list:
        """Cotangents of the inputs, from A, L, F and the cotangents of A and L."""

    def pullback(self, inputs, outputs, cotangents):
        """See :meth:`backward`."""
        pairs = zip(outputs[:2], cotangents[:2], strict=True)
        bars = [g if connected(g) else pt.zeros_like(out) for out, g in pairs]
        return self.backward(inputs, [*outputs, *bars])
