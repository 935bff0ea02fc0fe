"""Loops until a state no longer changes."""

import warnings
from collections.abc import Sequence

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import toposort
from pytensor.scan.utils import until


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


def repeat(state: Sequence[Variable], after: Sequence[Variable], start, done, limit: int) -> list:
    """Last state of a loop that ends where `done` is true, or after `limit` steps.

    Parameters
    ----------
    state, after : sequences of variables
        The state (roots), and graphs of the next one.
    start : sequence of variables
        The first state.
    done : scalar variable
        A graph of the state.
    limit : int

    Notes
    -----
    What does not depend on the state is computed once. There is no gradient.
    """
    fixed = outside([*after, done], state)

    def body(*args):
        found = graph_replace(
            [*after, done], dict(zip([*state, *fixed], args, strict=True)), strict=False
        )
        # Static shapes stay those of the first state.
        states = [
            pt.specify_shape(new, old.type.shape) if old.ndim else new
            for new, old in zip(found[:-1], args[: len(state)], strict=True)
        ]
        return states, until(found[-1])

    with warnings.catch_warnings():
        # In functions for a few calls the steps run in Python too: C would take 20 s to compile.
        warnings.filterwarnings("ignore", "The `mode` argument of `scan`", FutureWarning)
        traces = pytensor.scan(
            body, outputs_info=list(start), non_sequences=fixed, n_steps=limit,
            return_updates=False, mode="FAST_COMPILE",
        )  # fmt: skip
    return [trace[-1] for trace in (traces if isinstance(traces, list) else [traces])]
