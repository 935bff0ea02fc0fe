"""Zeros, infinities and NaN: Ops answer with numbers, whatever they are, and raise nothing.

A search or a sampler turns back from NaN, and ends with an exception.
"""

import numpy as np
import pytensor
import pytest
from all_ops import all_ops, shapes_of, tensors_of

VALUES = (0.0, np.inf, -np.inf, np.nan, 1e300, -1.0)

# Those whose inputs fit together by more than their lengths.
OTHERS = ("KhatriRao",)
OPS = [op for op in all_ops() if not op.id.startswith(OTHERS)]


def check(op, mode):
    """Inputs of one value, and each input in turn of another value than ones."""
    inputs, (shapes, _) = tensors_of(op), shapes_of(op)
    function = pytensor.function(inputs, op(*inputs), mode=mode, on_unused_input="ignore")
    places = [i for i in range(len(shapes)) if i not in op.discrete]
    for value in VALUES:
        for chosen in (places, *([place] for place in places)):
            filled = [
                np.zeros(shape, "int64") if i in op.discrete
                else np.full(shape, value if i in chosen else 1.0)
                for i, shape in enumerate(shapes)
            ]  # fmt: skip
            function(*filled)


@pytest.mark.parametrize("op", OPS)
def test_python(op):
    check(op, "FAST_COMPILE")


def slow_but(name):
    """All Ops, of which one is not slow."""
    for op in OPS:
        yield pytest.param(*op.values, id=op.id, marks=pytest.mark.slow if op.id != name else ())


@pytest.mark.parametrize("op", list(slow_but("VecchiaWhitenGrad")))
def test_numba(op):
    check(op, "NUMBA")
