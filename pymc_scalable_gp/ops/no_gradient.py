"""A tensor whose gradient is refused in words."""

from pytensor.compile.builders import SymbolicOp
from pytensor.tensor.basic import tensor_copy
from pytensor.tensor.variable import TensorVariable


class NoGradient(SymbolicOp):
    """The input itself; differentiating it raises."""

    __props__ = ("message",)
    inline = True

    def build_inner_graph(self, x):
        return [tensor_copy(x)]

    def pullback(self, inputs, outputs, cotangents):
        """Raise ValueError: there is no gradient."""
        raise ValueError(self.message)


def no_gradient(x: TensorVariable, message: str) -> TensorVariable:
    """`x`, of which `pytensor.grad` raises ValueError with `message`: what has none, and the way out."""
    return NoGradient(message=message)(x)
