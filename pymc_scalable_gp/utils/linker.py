"""A linker that writes a graph as one Python function of NumPy's."""

from collections import Counter
from functools import partial

import numpy as np
from pytensor.link.basic import JITLinker
from pytensor.tensor.elemwise import Elemwise


class PythonLinker(JITLinker):
    """A graph as a Python function, for what is called hundreds of times and not compiled.

    Elementwise operations are NumPy's functions, without what PyTensor's own loop over operations does at
    each. Where lengths differ, PyTensor's own function says what is wrong. Results are let go of after
    their last use. Of an `ifelse` both branches are computed.
    """

    def fgraph_convert(self, fgraph, order, storage_map, **kwargs):
        """The function."""
        names: dict = {}

        def name(variable):
            return names.setdefault(variable, f"v{len(names)}")

        given = [name(v) for v in fgraph.inputs]
        constants = {v for v in storage_map if v.owner is None}.difference(fgraph.inputs)
        held = constants.union(fgraph.inputs, fgraph.outputs)
        scope = {name(v): storage_map[v][0] for v in constants} | {"errstate": np.errstate}
        left = Counter(v for node in order for v in set(node.inputs))
        lines = [f"def graph({', '.join(given)}):", "    with errstate(all='ignore'):"]
        for place, node in enumerate(order):
            scope[f"f{place}"] = _function(node)
            taken, found = (", ".join(map(name, each)) for each in (node.inputs, node.outputs))
            lines.append(f"        {found} = f{place}({taken})")
            left.subtract(set(node.inputs))
            done = {*node.inputs, *node.outputs} - held
            over = ", ".join(name(v) for v in done if not left[v])
            lines += [f"        del {over}"] if over else []
        lines.append(f"    return ({''.join(f'{name(v)}, ' for v in fgraph.outputs)})")
        exec("\n".join(lines), scope)
        return scope["graph"]

    def jit_compile(self, fn):
        """The function as it is."""
        return fn

    def create_thunk_inputs(self, storage_map):
        """Places of its inputs."""
        return [storage_map[v] for v in self.fgraph.inputs]


def _function(node):
    """A function of arrays that returns the outputs of an operation."""
    own, function = _own(node), _of_numpy(node)
    if function is None:
        return own
    lengths = [v.type.broadcastable for v in node.inputs]
    whole = [place for place, each in enumerate(lengths) if not any(each)]
    if not whole or any(any(each) and not all(each) for each in lengths):
        return own
    dtype, first, others = np.dtype(node.outputs[0].type.dtype), whole[0], whole[1:]

    def call(*arrays):
        for place in others:
            if arrays[place].shape != arrays[first].shape:
                return own(*arrays)  # which says what is wrong
        found = function(*arrays)
        if type(found) is np.ndarray and found.dtype == dtype:
            return found
        return np.asarray(found, dtype)

    return call


def _of_numpy(node):
    """NumPy's function for an elementwise operation; None where there is none."""
    op = node.op
    if not isinstance(op, Elemwise) or len(node.outputs) > 1 or op.inplace_pattern:
        return None
    op.prepare_node(node, None, None, "py")
    if not isinstance(op.nfunc, np.ufunc) and op.nfunc is not np.where:
        return None
    if op.nfunc_spec[1] != len(node.inputs):
        return getattr(node.tag, "ufunc", None)  # of more operands, two at a time
    sig = getattr(node.tag, "sig", None)
    return op.nfunc if sig is None else partial(op.nfunc, sig=sig)


def _own(node):
    """The operation's own function, through places of its own for inputs and outputs."""
    places = {v: [None] for v in [*node.inputs, *node.outputs]}
    computed = {v: [v in node.inputs] for v in places}
    thunk = node.op.make_thunk(node, places, computed, [], impl="py")
    given = [places[v] for v in node.inputs]
    made = [places[v] for v in node.outputs]

    def call(*arrays):
        for place, array in zip(given, arrays, strict=True):
            place[0] = array
        thunk()
        found = [place[0] for place in made]
        for place in [*given, *made]:
            place[0] = None
        return found[0] if len(found) == 1 else found

    return call
