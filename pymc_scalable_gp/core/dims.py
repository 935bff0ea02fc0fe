"""Checks of ``dims=`` against the data that they label."""

import pymc as pm

from pymc_scalable_gp.core.data import Data
from pymc_scalable_gp.utils.evaluate import evaluate


def check_dims(dims, data: Data, name: str) -> None:
    """Raise ValueError if a dimension that the model knows has another length than `data` has rows."""
    if dims is None:
        return
    model = pm.modelcontext(None)
    names = [dims] if isinstance(dims, str) else list(dims)
    if len(names) != 1:
        raise ValueError(f"dims must name one dimension, that of the rows, got {dims!r}")
    length = model.dim_lengths.get(names[0])
    if length is None or data.mutable:
        return
    length, rows = int(evaluate([length])[0]), data.value.shape[0]
    if length != rows:
        raise ValueError(f"dims={names[0]!r} has length {length}, but {name} has {rows} rows")
