"""Questions about graphs."""

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable, RNGConsumerOp


def is_random(*variables) -> bool:
    """Whether any of the variables depends on a random variable or an unspecified input."""
    for v in ancestors(variables):
        if v.owner is None and not isinstance(v, Constant | SharedVariable):
            return True
        if v.owner is not None and isinstance(v.owner.op, RandomVariable | RNGConsumerOp):
            return True
    return False


def depends_only_on(outputs, allowed=()) -> bool:
    """Whether `outputs` are functions of the shared variables in `allowed` and of constants alone.

    The licence to compute something once and keep it: a random variable, an input without a value, or
    a foreign shared variable, such as the `pm.Data` of a mean function, may change later.
    """
    allowed = set(allowed)
    for v in ancestors(list(outputs), blockers=allowed):
        if v in allowed:
            continue
        if v.owner is None:
            if not isinstance(v, Constant):
                return False
        elif isinstance(v.owner.op, RandomVariable | RNGConsumerOp):
            return False
    return True
