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
