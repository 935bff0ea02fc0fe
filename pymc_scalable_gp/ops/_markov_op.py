"""What the Ops on sums of Markov processes share."""

from itertools import islice
from math import prod

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._markov_steps import DRIVE, STATIC
from pymc_scalable_gp.ops._numba import by_machine_code, form_of, one_source, register_numba

# Rows of a few states from which Python, too, takes machine code: a gradient takes half a second there, and
# its compilation ten or more. In predictions a row's price grows with up to the square of the states, in
# gradients less: from `STATES` on they count so. As many rows of all calls as cost what compiling does, of
# predictions for many draws, are enough too.
MANY, STATES, IN_ALL = 2000, 16, 30_000


class MarkovOp(GufuncOp):
    """An Op of a process's steps, rates, variances, features and noise, and of what its signature adds.

    Props: the `orders` of all factors, the `counts` of factors by group, and the `sizes`, numbers of
    features by group. See `markov_logp`.
    """

    __props__ = ("orders", "counts", "sizes")

    def __init__(self, orders, counts, sizes):
        self.orders, self.counts, self.sizes = tuple(orders), tuple(counts), tuple(sizes)
        self.rows_in_python = 0.0
        for order in self.orders:
            if order not in (STATIC, *range(len(DRIVE))):
                raise ValueError(f"orders must be -1, 0, 1 or 2, got {order}")
        rest, sizes = iter(self.orders), self.sizes
        fit = len(sizes) == len(self.counts) and sum(self.counts) == len(self.orders)
        if not fit or min(self.counts, default=1) < 1 or min(sizes, default=0) < 0:
            given = f"{len(self.orders)} orders do not fit counts {self.counts} and sizes {sizes}"
            raise ValueError(f"{given}: each group has one or more orders, and a number of features")
        groups = [list(islice(rest, count)) for count in self.counts]
        if any(STATIC in group and len(group) > 1 for group in groups):
            raise ValueError("a constant, of order -1, must be a group of its own")

    @property
    def is_single(self) -> bool:
        """Whether it is one Matern process with one feature."""
        return len(self.orders) == 1 and self.orders[0] >= 0 and self.sizes == (1,)

    @property
    def states(self) -> int:
        """Number of states, those of features that do not matter among them."""
        orders, total = iter(self.orders), 0
        for count, size in zip(self.counts, self.sizes, strict=True):
            total += size * prod(max(order, 0) + 1 for order in islice(orders, count))
        return total

    def lengths(self):
        """Those of the rates and the features."""
        return {"f": len(self.orders), "k": sum(self.sizes)}


def recursion(op_class, single=None):
    """Decorator: as `one_source`, and for many rows Python calls the Numba form as well.

    `single` makes the Numba function for one Matern process of q states and one feature.
    """

    def decorate(function):
        found = one_source(op_class)(function)
        in_python = op_class.perform

        def perform(self, node, inputs, output_storage):
            rows = len(inputs[0]) * (1.0 + (self.states / STATES) ** 2)
            if rows < MANY and self.rows_in_python + rows < IN_ALL:
                self.rows_in_python += rows
                in_python(self, node, inputs, output_storage)
                return
            self.check_lengths(inputs)
            by_machine_code(self, inputs, output_storage)

        op_class.perform = perform
        if single is not None:
            generic = form_of(op_class, function)
            register_numba(op_class)(lambda op: single(op.orders[0] + 1) if op.is_single else generic(op))
        return found

    return decorate
