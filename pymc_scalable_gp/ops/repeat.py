"""Loops: until a state no longer changes, or over parts of arrays."""

import warnings
from collections.abc import Sequence

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scan.utils import until

from pymc_scalable_gp.ops._expanded import Expanded, jax_function
from pymc_scalable_gp.ops._jax import jax, jnp, register_jax
from pymc_scalable_gp.utils.compiled import IN_PYTHON


def outside(outputs: Sequence[Variable], state: Sequence[Variable]) -> list[Variable]:
    """What graphs of `state` take from outside: the last variables that do not depend on it."""
    depends, found = set(state), {}
    for node in toposort(list(outputs), blockers=list(state)):
        if not any(v in depends for v in node.inputs):
            continue
        depends.update(node.outputs)
        for v in node.inputs:
            if v not in depends and not isinstance(v, Constant):
                found[v] = None
    return list(found)


class Repeat(Expanded):
    """Last state of a loop: of (first state, what does not change)."""

    def __init__(self, state, fixed, after, done, limit: int):
        self.body, self.count, self.limit = [*after, done], len(state), limit
        self.state, self.fixed = list(state), list(fixed)
        first = [v.type() for v in state]
        super().__init__([*first, *fixed], _scanned(first, self.fixed, self.next, limit))

    def next(self, *values) -> list[Variable]:
        """Graphs of the state after `values`, the state and what is fixed; and whether it is the last."""
        given = dict(zip([*self.state, *self.fixed], values, strict=True))
        return graph_replace(self.body, given, strict=False)

    def connection_pattern(self, node):
        """There is no gradient."""
        return [[False] * self.count for _ in node.inputs]


def _scanned(first, fixed, next_, limit):
    """The loop as a Scan of PyTensor."""

    def body(*args):
        *found, last = next_(*args)
        # Static shapes stay those of the first state.
        states = [
            pt.specify_shape(new, old.type.shape) if old.ndim else new
            for new, old in zip(found, args[: len(first)], strict=True)
        ]
        return states, until(last)

    traces = _scan(body, outputs_info=list(first), non_sequences=list(fixed), n_steps=limit)
    return [trace[-1] for trace in traces]


def _scan(body, **arguments) -> list[Variable]:
    """What PyTensor's Scan returns, always as a list."""
    with warnings.catch_warnings():
        # In functions for a few calls the steps run in Python too: C would take 20 s to compile.
        warnings.filterwarnings("ignore", "The `mode` argument of `scan`", FutureWarning)
        traces = pytensor.scan(body, return_updates=False, mode=IN_PYTHON, **arguments)
    return traces if isinstance(traces, list) else [traces]


@register_jax(Repeat, differentiable=False)
def jax_repeat(op):
    """``jax.lax.while_loop``."""
    step = jax_function([*op.state, *op.fixed], op.body)
    types = [v.type.dtype for v in op.state]

    def function(*inputs):
        first, fixed = inputs[: op.count], inputs[op.count :]
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
    fixed = [v.type() for v in outer]
    *new, done = graph_replace([*after, done], dict(zip(outer, fixed, strict=True)), strict=False)
    return Repeat(state, fixed, new, done, limit)(*start, *outer, return_list=True)


def has_loops(graph: Variable) -> bool:
    """Whether a graph, or the graph of an Op in it, repeats steps until a state no longer changes."""
    ops = (v.owner.op for v in ancestors([graph]) if v.owner is not None)
    return any(
        isinstance(op, Repeat) or (isinstance(op, Expanded) and any(map(has_loops, op.outputs)))
        for op in ops
    )


def by_parts(outputs: Sequence[Variable], part: Sequence[Variable], parts: Sequence) -> list:
    """Graphs of `part` (roots), evaluated for one part after the other, and stacked.

    `parts` are the values of `part` along one more axis, the first; `outputs` have the same shapes for
    every part. What does not depend on the part is computed once. The gradient computes each part again:
    nothing but the outputs is kept of it.
    """
    fixed = outside(outputs, part)

    def body(*values):
        return graph_replace(outputs, dict(zip([*part, *fixed], values, strict=True)))

    return _scan(body, sequences=list(parts), non_sequences=fixed)
