"""Ops that return gradients in their inputs, of which only those that are used get computed."""

from pytensor.compile.mode import optdb
from pytensor.graph.rewriting.basic import in2out, node_rewriter

from pymc_scalable_gp.ops._base import GufuncOp


class ParametrizedOp(GufuncOp):
    """An Op whose inputs end with the parameters of an operator, and its outputs with gradients.

    `own_inputs` and `own_outputs` are the signatures of those that come before. The gradients are in
    the parameters at the places `wanted`, one of the props. A pullback cannot know which of its results
    are used: it makes an Op with all of them, and the rewrite below leaves those that are.
    """

    own_inputs: tuple[str, ...]
    own_outputs: tuple[str, ...]
    wanted: tuple[int, ...] = ()

    def cast(self, place, tensor):
        """Parameters are taken as they are."""
        return super().cast(place, tensor) if place < len(self.own_inputs) else tensor

    def signature(self, inputs):
        """Every parameter has lengths of its own."""
        parameters = [
            f"({','.join(f'p{number}x{axis}' for axis in range(x.ndim))})"
            for number, x in enumerate(inputs[len(self.own_inputs) :])
        ]
        made = [*self.own_outputs, *(parameters[place] for place in self.wanted)]
        return f"{','.join([*self.own_inputs, *parameters])}->{','.join(made)}"

    def keeping(self, wanted: tuple[int, ...]):
        """The same Op with these gradients."""
        props = {name: getattr(self, name) for name in self.__props__}
        return type(self)(**(props | {"wanted": wanted}))


@node_rewriter([ParametrizedOp])
def drop_unused_gradients(fgraph, node):
    """Leave out the gradients that nothing in the graph uses."""
    op, first = node.op, len(node.op.own_outputs)
    gradients = dict(zip(op.wanted, node.outputs[first:], strict=True))
    used = {place: old for place, old in gradients.items() if fgraph.clients[old]}
    if len(used) == len(gradients):
        return None
    new = op.keeping(tuple(used))(*node.inputs, return_list=True)
    return dict(zip([*node.outputs[:first], *used.values()], new, strict=True))


prune = in2out(drop_unused_gradients)
# Not with the canonical forms, which PyMC takes before it differentiates.
optdb.register("drop_unused_gradients", prune, "fast_run", "fast_compile", position=1.95)
