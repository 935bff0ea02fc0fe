"""Small helpers of Ops."""

import pytensor.tensor as pt


def as_float64(*tensors):
    """The tensors, cast where they are not float64."""
    tensors = [pt.as_tensor_variable(a) for a in tensors]
    return [a if a.dtype == "float64" else a.astype("float64") for a in tensors]
