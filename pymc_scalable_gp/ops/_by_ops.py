"""A mode for functions that are called hundreds of times: Ops as machine code, the rest in Python."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import in2out, node_rewriter

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._numba import by_machine_code
from pymc_scalable_gp.ops.numeric_gram import NumericGram
from pymc_scalable_gp.ops.repeat import Repeat
from pymc_scalable_gp.utils.compiled import FEW_CALLS


class MachineCode(Op):
    """An Op that calls its machine code from Python too."""

    __props__ = ("op",)

    def __init__(self, op):
        self.op = op

    def make_node(self, *inputs):
        return Apply(self, inputs, [v.type() for v in self.op.make_node(*inputs).outputs])

    def perform(self, node, inputs, output_storage):
        self.op.check_lengths(inputs)
        by_machine_code(self.op, inputs, output_storage)


@node_rewriter([GufuncOp])
def in_machine_code(fgraph, node):
    """Put an Op's machine code in its place; what a user's Python computes has none."""
    return (
        None if isinstance(node.op, NumericGram) else MachineCode(node.op)(*node.inputs, return_list=True)
    )


@node_rewriter([Repeat])
def steps_in_machine_code(fgraph, node):
    """Likewise in the steps of a loop, which are a graph of their own."""
    op = node.op.in_mode(BY_OPS)
    return None if op is node.op else op(*node.inputs, return_list=True)


BY_OPS = FEW_CALLS.register((in2out(in_machine_code, steps_in_machine_code), 2.0))


def some_calls(name: str):
    """Mode for a function that is called hundreds of times, where the user's own is the one of that name.

    The Ops, where the time goes, are machine code, which all models share; what stands between them, which
    would be compiled for each model, stays in Python. All of it does in FAST_COMPILE.
    """
    return FEW_CALLS if name == "FAST_COMPILE" else BY_OPS
