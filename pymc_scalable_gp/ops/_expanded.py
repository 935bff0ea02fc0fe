"""Ops that stand for a graph: compiled as that graph, with a gradient and a JAX form of their own."""

from collections.abc import Sequence

from pytensor.compile.mode import get_mode, optdb
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter

from pymc_scalable_gp.ops._jax import jax_funcify
from pymc_scalable_gp.utils.compiled import compiled


class Expanded(Op):
    """A graph of some places, which the compilers of Numba and Python see in the Op's stead.

    Other rewrites, as PyMC's before it differentiates, see the Op, whose pullback is not that of the graph.
    """

    rewritten_pullback = True  # under JAX, whose slices need lengths that are known

    def __init__(self, places: Sequence[Variable], outputs: Sequence[Variable]):
        # Places may be variables of a model, or shared: no inputs of functions.
        self.places = [place.type() for place in places]
        given = dict(zip(places, self.places, strict=True))
        self.outputs = graph_replace(list(outputs), given, strict=False)

    def make_node(self, *inputs):
        inputs = [p.type.filter_variable(x) for p, x in zip(self.places, inputs, strict=True)]
        return Apply(self, inputs, [v.type() for v in self.outputs])

    def perform(self, node, inputs, output_storage):
        """By the graph's own function, where a mode does not expand it."""
        for storage, value in zip(output_storage, self._function()(*inputs), strict=True):
            storage[0] = value

    def infer_shape(self, node, input_shapes):
        return [tuple(out.shape[axis] for axis in range(out.type.ndim)) for out in node.outputs]

    def check_lengths(self, arrays) -> None:
        """The graph's own Ops check them."""

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k != "_compiled"}

    def _function(self):
        if "_compiled" not in self.__dict__:
            self._compiled = compiled(self.places, self.outputs)
        return self._compiled


@node_rewriter([Expanded])
def expand(fgraph, node):
    """Put the graph in the Op's place."""
    given = dict(zip(node.op.places, node.inputs, strict=True))
    return graph_replace(node.op.outputs, given, strict=False)


# Under JAX loops and gradients have forms of their own.
optdb.register("expand_graphs", dfs_rewriter(expand), "numba", "expanded", position=-0.02)


def jax_function(places, outputs):
    """JAX function of a graph."""
    graph = FunctionGraph(list(places), list(outputs), clone=True)
    get_mode("JAX").optimizer.rewrite(graph)
    return jax_funcify(graph)
