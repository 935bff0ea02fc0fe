"""Questions about graphs."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable, RNGConsumerOp


def is_random(*variables, known: Iterable[Variable] = ()) -> bool:
    """Whether any of the variables depends on a random variable or an input other than `known`."""
    known = set(known)
    for v in ancestors(variables, blockers=known):
        if v in known:
            continue
        if v.owner is None and not isinstance(v, Constant | SharedVariable):
            return True
        if v.owner is not None and isinstance(v.owner.op, RandomVariable | RNGConsumerOp):
            return True
    return False


def fixed_shared(array, name: str | None = None) -> SharedVariable:
    """Shared variable (float64, static shape) that nothing replaces: a constant too large for a graph.

    PyTensor bakes constants into what it compiles, and does not cache functions with large ones.
    """
    array = np.asarray(array, dtype="float64")
    variable = pytensor.shared(array, name=name, borrow=True, shape=array.shape)
    variable.tag.fixed = True
    return variable


def depends_only_on(outputs: Sequence[Variable], allowed: Iterable[Variable] = ()) -> bool:
    """Whether `outputs` are functions of constants and `allowed` alone, so that they may be computed once.

    Parameters
    ----------
    outputs : sequence of variables
    allowed : variables
        Shared variables, inputs or expressions that are known not to change; what lies behind an
        allowed expression is not looked at.

    Returns
    -------
    bool
        False when anything else is behind `outputs`: a random variable or a random generator, an
        unspecified input, or a shared variable, such as a ``pm.Data`` that ``pm.set_data`` may change;
        those of :func:`fixed_shared` count as constants.
    """
    known = set(allowed)
    for v in ancestors(outputs, blockers=known):
        if v in known:
            continue
        if v.owner is None:
            if not (isinstance(v, Constant) or getattr(v.tag, "fixed", False)):
                return False
        elif isinstance(v.owner.op, RandomVariable | RNGConsumerOp):
            return False
    return True
