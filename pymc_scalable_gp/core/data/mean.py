"""Mean functions: their values, and their fixed part beside one that is linear in free coefficients."""

from operator import add, mul
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.gp.mean import Add, Constant, Linear, Prod, Zero
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.utils.compiled import present_shape
from pymc_scalable_gp.utils.graphs import depends_only_on


def check_mean(mean_func):
    """A mean function; zero for None."""
    if mean_func is not None and not callable(mean_func):
        raise TypeError(
            f"mean_func must be a pm.gp.mean function, got {type(mean_func).__name__}: a level is "
            "pm.gp.mean.Constant(level)"
        )
    return Zero() if mean_func is None else mean_func


def mean_vector(mean_func, X: TensorVariable) -> TensorVariable:
    """``mean_func(X)`` (n,), for functions that return a scalar, (n,) or one column (n, 1).

    ``pm.gp.mean.Linear`` with scalar coefficients returns a column, which would broadcast against the
    targets to an n x n matrix, and in a sum or product against its other parts.
    """
    if isinstance(mean_func, Add | Prod):
        parts = (mean_vector(part, X) for part in (mean_func.m1, mean_func.m2))
        return (add if isinstance(mean_func, Add) else mul)(*parts)
    mean = pt.as_tensor_variable(mean_func(X)).astype("float64")
    if mean.ndim == 0 or (mean.ndim == 1 and mean.type.shape[0] == 1):
        return mean + pt.zeros_like(X[:, 0])
    if mean.ndim == 2 and mean.type.shape[1] in (1, None):
        return pt.specify_shape(mean, (None, 1))[:, 0]
    if mean.ndim != 1:
        raise ValueError(
            f"mean_func must give one value per row, shape (n,), got shape {mean.type.shape}: with "
            "pm.gp.mean.Linear, coeffs must have shape (d,) for X (n, d)"
        )
    _check_length(mean.type.shape[0], X.type.shape[0])
    return mean


def check_mean_at(mean_func, X: np.ndarray, own: bool) -> None:
    """Raise ValueError for a mean function of certain rows, unless X (n, d) are the likelihood's `own`."""
    rows = X if own else X[:1]
    (length,) = present_shape(mean_vector(mean_func, pt.constant(rows)))
    _check_length(length, len(rows))


def _check_length(length: int | None, rows: int | None) -> None:
    if None not in (length, rows) and length != rows:
        raise ValueError(
            f"mean_func gives {length} values for X of shape ({rows}, d): for other rows than the "
            "likelihood's it must follow from X. Put what it knows of the rows into columns of X, and let "
            "the kernel leave them out by active_dims="
        )


class MeanDesign(NamedTuple):
    """``mean(X) = fixed(X) + H(X) beta``: functions of X that are fixed, and what multiplies columns."""

    fixed: list
    columns: list  # functions X (n, d) -> (n, 1) or (n, d)
    beta: TensorVariable | None
    count: int  # h, of the columns

    def values(self, X: TensorVariable) -> list[TensorVariable]:
        """The columns H, in pieces, and the fixed part (n, 1)."""
        fixed = sum((mean_vector(f, X) for f in self.fixed), pt.zeros_like(X[:, 0]))
        return [*(column(X) for column in self.columns), fixed[:, None]]


def mean_design(mean_func, d: int) -> MeanDesign | None:
    """Take a mean of d inputs apart; None if more is free than Constant, Linear and their sums."""
    fixed, columns, beta, count = [], [], [], 0
    for part in _parts(mean_func):
        X = pt.matrix("X", shape=(None, d))
        if isinstance(part, Zero):
            continue
        if depends_only_on([pt.as_tensor_variable(part(X))], [X]):
            fixed.append(part)
        elif isinstance(part, Constant) and _is_scalar(part.c):
            columns.append(_ones)
            beta.append(pt.atleast_1d(part.c))
            count += 1
        elif isinstance(part, Linear) and _is_scalar(part.b):
            columns += [_itself, _ones]
            slope = pt.as_tensor_variable(part.A)
            slope = slope[:, 0] if slope.ndim == 2 else slope * pt.ones(d)
            beta += [slope, pt.atleast_1d(part.b)]
            count += d + 1
        else:
            return None
    joined = pt.concatenate([b.astype("float64") for b in beta]) if beta else None
    return MeanDesign(fixed, columns, joined, count)


def _is_scalar(coefficient) -> bool:
    return pt.as_tensor_variable(coefficient).type.shape in ((), (1,))


def _ones(X):
    return pt.ones_like(X[:, :1])


def _itself(X):
    return X


def _parts(mean_func):
    if isinstance(mean_func, Add):
        return [*_parts(mean_func.m1), *_parts(mean_func.m2)]
    return [mean_func]
