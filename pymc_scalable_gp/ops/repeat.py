"""Loops: until a state no longer changes, or over parts of arrays."""

import warnings
from collections.abc import Sequence
from copy import copy

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import constant_fold
from pytensor.compile.mode import get_mode
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import toposort
from pytensor.link.numba.dispatch import basic as nb
from pytensor.tensor.basic import ScalarFromTensor, get_underlying_scalar_constant_value
from pytensor.tensor.exceptions import NotScalarConstantError

from pymc_scalable_gp.ops._expanded import jax_function
from pymc_scalable_gp.ops._jax import jax, jnp, register_jax
from pymc_scalable_gp.ops._numba import compiled_once, contiguous, from_source, source_version
from pymc_scalable_gp.utils.compiled import FLATTENING, IN_PYTHON, TRYING
from pymc_scalable_gp.utils.threads import ForThreads


def outside(outputs: Sequence[Variable], state: Sequence[Variable]) -> list[Variable]:
    """What graphs of `state` take from outside: the last variables that do not depend on it.

    Of the transpose of a matrix that is the matrix itself, as it lies in memory; of a number the tensor
    that holds it.
    """
    depends, found = set(state), {}
    for node in toposort(list(outputs), blockers=list(state)):
        if not any(v in depends for v in node.inputs):
            continue
        depends.update(node.outputs)
        for v in node.inputs:
            if v not in depends and not isinstance(v, Constant):
                op = None if v.owner is None else v.owner.op
                within = getattr(op, "new_order", None) == (1, 0) or isinstance(op, ScalarFromTensor)
                found[v.owner.inputs[0] if within else v] = None
    return list(found)


def _place(v) -> Variable:
    """Place of what a loop takes from outside; lengths that follow from static shapes themselves.

    JAX splits arrays by no others.
    """
    if v.owner is None or v.type.dtype != "int64":
        return v.type()
    (found,) = constant_fold([v], raise_not_constant=False)
    return pt.constant(found) if isinstance(found, np.ndarray) else v.type()


def _told(v, place) -> Variable:
    """The place of v, and that all its entries are one number where they are.

    Rewrites need that, as of the zeros that derivatives have where a switch takes the other branch.
    """
    try:
        return pt.second(place, get_underlying_scalar_constant_value(v))
    except NotScalarConstantError:
        return place


class Repeat(Op):
    """Last state of a loop: of (first state, what does not change)."""

    def __init__(self, state, fixed, after, done, limit: int):
        # Lengths and kinds of numbers stay those of the first state.
        kept = [old.type.filter_variable(new) for old, new in zip(state, after, strict=True)]
        self.body, self.limit = [*kept, done], limit
        self.state, self.fixed = list(state), list(fixed)
        # Of all functions that the Op is in: they are compiled one after the other, and run in threads.
        self._step = self._compiled()
        self._in_modes: dict = {}

    def make_node(self, *inputs):
        places = [*self.state, *self.fixed]
        inputs = [p.type.filter_variable(x) for p, x in zip(places, inputs, strict=True)]
        return Apply(self, inputs, [v.type() for v in self.state])

    def infer_shape(self, node, input_shapes):
        return input_shapes[: len(self.state)]

    def connection_pattern(self, node):
        """There is no gradient: those who use the last state know how it depends on what is fixed."""
        return [[False] * len(self.state) for _ in node.inputs]

    def pullback(self, inputs, outputs, cotangents):
        """As :meth:`connection_pattern` says."""
        return [disconnected_type() for _ in inputs]

    def check_lengths(self, arrays) -> None:
        """The Ops of a step check them."""

    def __getstate__(self):
        return self.__dict__ | {"_in_modes": {}}

    def in_mode(self, mode) -> "Repeat":
        """The same loop where steps that run in Python are compiled in this mode."""
        if mode not in self._in_modes:
            self._in_modes[mode] = other = copy(self)
            other._in_modes, other._step = self._in_modes, self._compiled(mode=mode)
        return self._in_modes[mode]

    def _compiled(self, **options) -> ForThreads:
        return ForThreads([*self.state, *self.fixed], self.body, trust_input=True, **options)

    def perform(self, node, inputs, output_storage):
        count = len(self.state)
        state, fixed = [np.array(x) for x in inputs[:count]], inputs[count:]
        for _ in range(self.limit):
            *state, done = self._step(*state, *fixed)
            if done:
                break
        for storage, value in zip(output_storage, state, strict=True):
            storage[0] = value


@nb.register_funcify_and_cache_key(Repeat)
def numba_repeat(op, node=None, **kwargs):
    """A loop around a step, which is compiled once, apart from what calls it."""
    graph = FunctionGraph([*op.state, *op.fixed], op.body, clone=True)
    # Flat sums lose digits near the end of Newton's method, which then takes more steps.
    get_mode("NUMBA").excluding("inplace", *FLATTENING, *TRYING).optimizer.rewrite(graph)
    step, key = nb.numba_funcify_and_cache_key(graph, fgraph_name="step", **kwargs)
    state = [f"x{place}" for place in range(len(op.state))]
    fixed = [f"a{place}" for place in range(len(op.fixed))]
    given = ", ".join(state + fixed)
    if key is not None:
        # On disk it is found by its file, too, of which PyTensor writes a new one each time.
        code = step.py_func.__code__
        step.py_func.__code__ = code.replace(co_filename="<repeated>")
        kinds = tuple(nb.get_numba_type(v.type, layout="C") for v in graph.inputs)
        step = compiled_once(step, kinds, ("repeated", key))
    lines = [f"def repeat({given}):"]
    lines += [f"    {x} = {x}.copy()" for x in state]
    lines += [f"    {a} = contiguous({a})" for a in fixed]
    lines += [f"    for _ in range({op.limit}):"]
    lines += [f"        {', '.join(state)}, done = step({given})"]
    lines += [f"        {x} = contiguous({x})" for x in state]
    lines += ["        if done.item():", "            break", f"    return {', '.join(state)}"]
    made = from_source("\n".join(lines), "repeat", {"step": step, "contiguous": contiguous})
    return made, key and f"repeat_{key}_{op.limit}_{source_version()}"


@register_jax(Repeat, differentiable=False)
def jax_repeat(op):
    """``jax.lax.while_loop``."""
    step = jax_function([*op.state, *op.fixed], op.body)
    types = [v.type.dtype for v in op.state]

    def function(*inputs):
        count = len(op.state)
        first, fixed = inputs[:count], inputs[count:]
        first = tuple(jnp.asarray(x, t) for x, t in zip(first, types, strict=True))

        def again(carried):
            _, count, last = carried
            return (count < op.limit) & ~last

        def once(carried):
            state, count, _ = carried
            *found, last = step(*state, *fixed)
            found = tuple(jnp.asarray(x, t) for x, t in zip(found, types, strict=True))
            return found, count + 1, jnp.asarray(last, bool).reshape(())

        found, _, _ = jax.lax.while_loop(again, once, (first, 0, jnp.asarray(False)))
        return found if len(found) > 1 else found[0]

    return function


def repeat(state: Sequence[Variable], after: Sequence[Variable], start, done, limit: int) -> list:
    """Last state of a loop that ends where `done` is true, or after `limit` steps.

    `after` and `done` are graphs of the `state` (roots): the next one, and whether it is the last. What
    does not depend on the state is computed once. There is no gradient.
    """
    outer = outside([*after, done], state)
    places = {v: _place(v) for v in outer}
    within = {v: _told(v, place) for v, place in places.items()}
    *new, done = graph_replace([*after, done], within, strict=False)
    outer = [v for v in outer if not isinstance(places[v], Constant)]
    fixed = [places[v] for v in outer]
    return Repeat(state, fixed, new, done, limit)(*start, *outer, return_list=True)


def by_parts(outputs: Sequence[Variable], part: Sequence[Variable], parts: Sequence) -> list:
    """Graphs of `part` (roots), evaluated for one part after the other, and stacked.

    `parts` are the values of `part` along one more axis, the first; `outputs` have the same shapes for
    every part. What does not depend on the part is computed once. The gradient computes each part again:
    nothing but the outputs is kept of it.
    """
    fixed = outside(outputs, part)

    def body(*values):
        return graph_replace(outputs, dict(zip([*part, *fixed], values, strict=True)))

    with warnings.catch_warnings():
        # In functions for a few calls the steps run in Python too: C would take 20 s to compile.
        warnings.filterwarnings("ignore", "The `mode` argument of `scan`", FutureWarning)
        traces = pytensor.scan(
            body, sequences=list(parts), non_sequences=fixed, return_updates=False, mode=IN_PYTHON
        )
    return traces if isinstance(traces, list) else [traces]
