"""Rows without a target."""

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import ABSENT, check_inputs
from pymc_scalable_gp.core.data.labels import refuse_another_order
from pymc_scalable_gp.utils.graphs import present_value
from pymc_scalable_gp.utils.warn import warn


def rows_with_targets(X, y, sigma):
    """X, y and sigma without the rows whose targets are missing: NaN, masked, or pandas' NA.

    They are integrated out, which is what sampling them comes to. Inputs or targets that `pm.set_data` may
    replace come back as they are, as does what has no missing targets.
    """
    if isinstance(y, Variable) or isinstance(X, Variable):
        return X, y, sigma
    refuse_another_order(X, y)
    refuse_another_order(X, sigma, "sigma")
    refuse_another_order(y, sigma, "sigma", "y")
    masked = np.ma.isMA(y)  # others may have a `_data` that is no array, as a Series of pandas 2
    values, missing = (y.data, np.ma.getmaskarray(y)) if masked else (np.asarray(y), False)
    if values.dtype.kind == "f":
        missing = np.isnan(values) | missing
    elif values.dtype.kind == "O":
        absent = [type(v).__name__ in ABSENT or v != v for v in values.flat]
        missing = np.reshape(absent, values.shape) | missing
    if values.ndim != 1 or not np.any(missing):
        return X, y, sigma
    inputs, rows = check_inputs(X).value, np.flatnonzero(~missing)
    if len(inputs) != len(missing) or not len(rows):
        return X, y, sigma
    warn(
        f"y has {missing.sum()} missing values in {len(missing)} rows: these rows are integrated out, and "
        "the observed variable has the others. Their values follow from gp.predict"
    )
    if isinstance(sigma, TensorVariable) and sigma.ndim == 1 and sigma.type.shape != (1,):
        sigma = sigma[rows]
    elif np.shape(sigma) == missing.shape:
        sigma = _taken(sigma if hasattr(sigma, "shape") else np.asarray(sigma), rows)
    return _taken(X, rows) if hasattr(X, "columns") else inputs[rows], values[rows], sigma


def _taken(values, rows):
    """Some rows of a table, whose labels pandas would look the numbers up among, or of an array."""
    return (values.iloc if hasattr(values, "iloc") else values)[rows]


# What to do where X and y have other numbers of rows.
REPLACE_BOTH = "since pm.set_data: replace both, or give new rows to gp.predict or gp.conditional"


def refuse_lengths(X, y) -> None:
    """Raise ValueError unless ``pm.set_data`` left as many inputs (n, d) as targets (n,)."""
    if len(X) != len(y):
        raise ValueError(f"X has {len(X)} rows and y {len(y)} values {REPLACE_BOTH}")


def refuse_replaced(training) -> None:
    """Raise ValueError for a likelihood left by ``pm.set_data`` with NaN, or with other numbers of rows."""
    if training is None or training.gaussian is None or not training.has_rows:
        return
    X, y = training.data.X, training.data.y
    values = present_value(y.tensor) if X.mutable or y.mutable else None
    if values is None:  # numbers that nothing replaces, or an expression
        return
    missing = (np.isnan(np.ma.getdata(values)) | np.ma.getmaskarray(values)).sum()  # PyMC masks NaN
    if missing:
        raise ValueError(
            f"y has {missing} NaN in {len(values)} rows since pm.set_data: give X and y without these rows"
        )
    inputs = present_value(X.tensor)
    if inputs is not None:
        refuse_lengths(inputs, values)
