"""Checks of user input; errors name the argument, what was given, and what would work."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import Add, BaseCovariance, WhiteNoise
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.labels import refuse_another_order
from pymc_scalable_gp.cov.queries import check_kernel
from pymc_scalable_gp.utils.checks import RefuseShape
from pymc_scalable_gp.utils.classes import Listed
from pymc_scalable_gp.utils.compiled import evaluate, present_shape
from pymc_scalable_gp.utils.graphs import (
    draws_numbers,
    fixed_shared,
    is_random,
    model_here,
    present_value,
    with_observations,
)
from pymc_scalable_gp.utils.internals import parts_of
from pymc_scalable_gp.utils.warn import warn

# Share of a column's range that a step of float32 may be.
COARSE = 1e-3

# Rows up to which numbers may lie on steps of float32 by chance.
FEW = 10

DATES = "of dates give days or seconds since a start"
TEXT = "encode text and categories as numbers, new rows as X: pd.Categorical(labels, levels).codes"

# Type names of the values that pandas uses for missing entries; pandas itself is not imported.
ABSENT = ("NAType", "NaTType", "NoneType")


@dataclass(frozen=True)
class Data:
    """A tensor for the graph, its present value, and whether ``pm.set_data`` may change it.

    `grid` is the RegularGrid whose observed cells these inputs are, if that is how they came; `columns`
    are the names of those of a table.
    """

    tensor: TensorVariable
    value: np.ndarray
    mutable: bool
    grid: Any = None
    columns: tuple = ()

    @classmethod
    def fixed(cls, value: np.ndarray) -> "Data":
        """Numbers that nothing replaces."""
        return cls(fixed_shared(value), value, False)


def names_of(X) -> tuple[str, ...]:
    """Names of the columns of a table, or of what was made of one; else none."""
    return tuple(str(c) for c in getattr(X, "columns", ()))


def refuse_other_columns(X, names: tuple[str, ...], name: str) -> None:
    """Raise ValueError for a table, or what was made of one, with these columns in another order."""
    if names_of(X) != names and sorted(names_of(X)) == sorted(names):
        raise ValueError(
            f"{name} has columns in another order than before, and columns go by their place: give them "
            f"as {list(names)}"
        )


def held_value(data: Data, name: str) -> np.ndarray:
    """Present value of checked inputs or targets; ValueError if they have a prior."""
    if is_random(data.tensor):
        raise ValueError(f"{name} has a prior, and this needs rows that are known")
    present = present_value(data.tensor)
    return np.asarray(evaluate([data.tensor])[0] if present is None else present)


def check_inputs(X, name: str = "X", d: int | None = None, empty: bool = False) -> Data:
    """Inputs (n, d) of any array kind, shared data or expression as float64 :class:`Data`."""
    columns, data = names_of(X), _as_data(with_observations(X), name)
    value = data.value
    if value.ndim != 2:
        hint = "; reshape a single column, X[:, None] (of a table X.to_frame())" if value.ndim == 1 else ""
        raise ValueError(f"{name} must have shape (n, d), got shape {value.shape}{hint}")
    if value.shape[1] == 0 or (value.shape[0] == 0 and not empty):
        raise ValueError(f"{name} must have at least one row and one column, got {value.shape}")
    bad = ~np.isfinite(value)
    if bad.any():
        counts, labels = bad.sum(axis=0), columns or range(value.shape[1])
        where = ", ".join(f"column {labels[j]} ({counts[j]})" for j in np.flatnonzero(counts))
        hint = "drop or impute those rows"
        # New rows have to keep the columns of the old ones.
        if not (empty or d) and 1 < len(value) == counts.max():
            hint = "leave out columns without a finite value (constant ones, divided by their sd of 0?)"
        raise ValueError(f"{name} has {bad.sum()} NaN or infinite values, in {where}: {hint}")
    if d is not None and value.shape[1] != d:
        raise ValueError(f"{name} has {value.shape[1]} columns, the GP was built on {d}")
    warn_rounded(X, value, name)
    return replace(data, tensor=_of_columns(data, name), columns=columns)


def _of_columns(data: Data, name: str) -> TensorVariable:
    """The tensor of inputs, refused once ``pm.set_data`` gives it another number of columns."""
    tensor, d = data.tensor, data.value.shape[1]
    if tensor.type.shape[1] is not None or is_random(tensor):
        return tensor
    message = (
        f"{name} had {d} columns when the GP took it, and another number since pm.set_data: give {d} "
        "columns, or build a new model"
    )
    return pt.specify_shape(RefuseShape(message)(tensor, pt.eq(tensor.shape[1], d)), (None, d))


def _is_single(X, value) -> bool:
    """Whether inputs, or shared data that PyMC may have converted, are numbers of float32."""
    if isinstance(X, SharedVariable):
        return len(value) > FEW and np.array_equal(value, value.astype("float32"))
    return np.dtype(X.dtype if isinstance(X, Variable) else np.asarray(X).dtype) == np.float32


def warn_rounded(X, value, name: str) -> None:
    """Warn of columns of X that came in float32 and lie in few steps, as years or seconds do.

    `value` (n, d) is X as numbers.
    """
    if not (len(value) and _is_single(X, value)):
        return
    steps, widths = np.spacing(np.abs(value).max(axis=0).astype("float32")), np.ptp(value, axis=0)
    for j in np.flatnonzero((steps > COARSE * widths) & (widths > 0.0)):
        warn(
            f"{name} came as float32, in which column {j} has steps of {steps[j]:.3g} and a range of "
            f"{widths[j]:.3g}: subtract an offset before, or keep float64 (floatX=float64)"
        )


def digest(*arrays: np.ndarray) -> bytes:
    """Digest that identifies the contents of arrays without keeping a copy."""
    found = blake2b()
    for array in arrays:
        found.update(str((array.shape, array.dtype)).encode())
        found.update(np.ascontiguousarray(array))
    return found.digest()


def refuse_masked(value, name: str) -> None:
    """Raise for a masked array with masked entries, whose fill values NumPy would go on with."""
    count = int(np.ma.getmaskarray(value).sum()) if isinstance(value, np.ma.MaskedArray) else 0
    if count:
        rows = np.ma.getmaskarray(value)
        rows = int(rows.reshape((len(rows), -1)).any(axis=1).sum()) if rows.ndim else 1
        raise ValueError(
            f"{name} has {count} masked values, in {rows} rows: drop those rows from X, y and everything "
            f"else that goes by rows, with keep = ~np.ma.getmaskarray({name.split()[-1]}), or impute them. "
            "Cells of a sgp.RegularGrid may be missing: give observed= there"
        )


def check_target(y, n: int, X=None) -> Data:
    """Targets (n,) as float64 :class:`Data`, their index checked by that of the inputs X as they came."""
    refuse_another_order(X, y)
    data = _as_data(y, "y")
    value = data.value
    if is_random(data.tensor):
        raise ValueError(
            "y depends on variables of the model, but must be data: they go into mean_func= or likelihood="
        )
    if draws_numbers(data.tensor):
        raise ValueError(
            "y is a pm.Minibatch: the rows of a GP depend on one another, and some of them have another "
            "density. Give all rows, or statistics="
        )
    if value.ndim != 1:
        hint = "; use y[:, 0] (of a table y.iloc[:, 0])" if value.ndim == 2 and value.shape[1] == 1 else ""
        raise ValueError(f"y must have shape (n,), got shape {value.shape}{hint}")
    if value.shape[0] != n:
        raise ValueError(f"y has {value.shape[0]} values, but X has {n} rows")
    bad = int((~np.isfinite(value)).sum())
    if 0 < bad == len(value):
        raise ValueError(f"y has no finite value among {bad}: there is nothing to learn from")
    if bad:
        raise ValueError(
            f"y has {bad} NaN or infinite values: drop those rows of X and y. Missing targets of Gaussian "
            f"noise can stay in {Listed.names_with('missing targets')}, of arrays"
        )
    return data


def check_block(X, y, where: str, start: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows X (b, d) and y (b,) of a longer source as float64; `where` and row `start` go to errors."""
    refuse_another_order(X, y)
    X, y = _numeric(X, f"{where}: X"), _numeric(y, f"{where}: y")
    if X.ndim != 2 or y.ndim != 1 or len(X) != len(y):
        raise ValueError(
            f"{where}: X and y must have shapes (rows, d) and (rows,), got {X.shape} and {y.shape}"
        )
    bad = np.flatnonzero(~(np.isfinite(X).all(axis=1) & np.isfinite(y)))
    if bad.size:
        raise ValueError(
            f"{where}: NaN or infinite values in {bad.size} rows, the first of them row "
            f"{start + bad[0]}: drop or impute those rows"
        )
    return X, y


def split_noise(sigma) -> tuple[Any, BaseCovariance | None]:
    """Standard deviation of the noise's independent part, and the kernel of the rest; None without one.

    ``sum_i N_i + sum_j WhiteNoise(s_j)`` has ``sqrt(sum_j s_j^2)`` and ``sum_i N_i``.
    """
    if not isinstance(sigma, BaseCovariance):
        return sigma, None
    terms = parts_of(sigma) if isinstance(sigma, Add) else [sigma]
    white = [pt.as_tensor_variable(each.sigma) for each in terms if isinstance(each, WhiteNoise)]
    rest = [each for each in terms if not isinstance(each, WhiteNoise)]
    if not white:
        raise ValueError(
            "sigma is a kernel without noise of single rows: add pm.gp.cov.WhiteNoise(s) to it, with a "
            "small s for next to none"
        )
    total = white[0] if len(white) == 1 else pt.sqrt(sum(pt.square(s) for s in white))
    if not rest:
        return total, None
    kernel = sum(rest[1:], start=rest[0])
    check_kernel(kernel, "give it as a term of its own, sigma=Matern32(...) + WhiteNoise(s)")
    return total, kernel


def check_sigma(sigma, n: int | None, X=None, y=None) -> TensorVariable:
    """Positive noise sd, scalar or one per row, its index checked by those of X and y as they came."""
    refuse_another_order(X, sigma, "sigma")
    refuse_another_order(y, sigma, "sigma", "y")  # where X is an array
    if isinstance(sigma, WhiteNoise):
        sigma = sigma.sigma
    if isinstance(sigma, BaseCovariance):
        raise TypeError(
            "sigma must be a noise standard deviation, scalar or (n,), got the covariance "
            f"{type(sigma).__name__}: only WhiteNoise can be used. sgp.ExactMarginal takes noise that is "
            "correlated; here it is a GP of its own: add one with that kernel, give the likelihood to the "
            'sum, and predict the function with given={"gp": the sum}'
        )
    tensor = _float64(_tensor(sigma, "sigma"))
    if tensor.ndim > 1:
        raise ValueError(f"sigma must be a scalar or have shape (n,), got {tensor.ndim} dimensions")
    length = tensor.type.shape[0] if tensor.ndim else None
    if tensor.ndim and length is None and is_random(tensor):  # of dims
        (length,) = present_shape(tensor)
    if n is not None and length is not None and length not in (1, n):
        raise ValueError(f"sigma has {length} values, but X has {n} rows: give a scalar or one per row")
    if length == 1 and n != 1:
        tensor = tensor[0]
    if not is_random(tensor):
        value = tensor.data if isinstance(tensor, Constant) else evaluate([tensor])[0]
        if not np.isfinite(value).all():
            bad = int((~np.isfinite(value)).sum())
            raise ValueError(f"sigma has {bad} NaN or infinite values")
        if (value <= 0).any():
            raise ValueError(
                f"sigma must be positive, got {value.min():g}: for data without noise give a small "
                "value, such as a thousandth of y's standard deviation"
            )
    return tensor


def check_rows(rows, n: int, name: str, what: str = "") -> np.ndarray:
    """Rows out of n, whole, in range and distinct, or an error; `what` says what else may be given."""
    rows = np.asarray(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise TypeError(
            f"{name} must be {what}integer rows of X, shape (m,), got {rows.dtype} of shape {rows.shape}"
        )
    if rows.min() < 0 or rows.max() >= n:
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise ValueError(f"{name} names row {wrong}, but X has {n} rows")
    if len(np.unique(rows)) < len(rows):
        raise ValueError(f"{name} names a row more than once")
    return rows.astype(int)


def check_weights(weights, rank: int) -> TensorVariable | None:
    """Positive weights (rank,), or None."""
    if weights is None:
        return None
    tensor = _float64(_tensor(weights, "weights"))
    length = tensor.type.shape[0] if tensor.ndim == 1 else None
    if tensor.ndim != 1 or (length is not None and length != rank):
        raise ValueError(
            f"weights must have shape ({rank},), the rank that build(X) returns, got shape "
            f"{tensor.type.shape}"
        )
    if not is_random(tensor) and not (evaluate([tensor])[0] > 0).all():
        raise ValueError("weights must be positive")
    return tensor


def check_temperature(temperature) -> TensorVariable:
    """A positive scalar or one value per column, constant or random."""
    tensor = _float64(_tensor(temperature, "temperature"))
    if tensor.ndim > 1:
        raise ValueError(f"temperature must be a scalar or have shape (d,), got {tensor.ndim} dimensions")
    if not is_random(tensor):
        value = evaluate([tensor])[0]
        if not (np.isfinite(value).all() and (value > 0).all()):
            raise ValueError(f"temperature must be positive and finite, got {value}")
    return tensor


def check_given(given) -> dict[str, Any]:
    """``given=`` as a dictionary with known keys: X, y and sigma together, or none of them."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"given must be a dictionary, got {type(given).__name__}")
    unknown = set(given) - {"X", "y", "sigma", "gp"}
    if unknown:
        raise ValueError(f"given has unknown keys {sorted(unknown)}; it takes X, gp, sigma, y")
    missing = [key for key in ("X", "y", "sigma") if key not in given]
    if 0 < len(missing) < 3:
        raise ValueError(
            f"given lacks {missing}: pass X, y and sigma together, or none of them to condition on "
            "the training data and their likelihood"
        )
    return dict(given)


def _tensor(value, name):
    if isinstance(value, Variable):
        return value
    return pt.constant(_numeric(value, name))


def _float64(tensor):
    if tensor.dtype == "float64":
        return tensor
    if np.dtype(tensor.dtype).kind not in "fiub":
        raise TypeError(f"expected real numbers, got dtype {tensor.dtype}")
    return tensor.astype("float64")


def _as_data(value, name) -> Data:
    if isinstance(value, Variable):
        if isinstance(value, Constant):
            return _as_data(value.data, name)
        present = present_value(value)
        present = evaluate([value])[0] if present is None else present
        return Data(_float64(value), _numeric(present, name), True)
    # A copy: later changes of the user's array do not reach the model.
    return Data.fixed(np.array(_numeric(value, name)))


def _numeric(value, name):
    refuse_masked(value, name)
    if hasattr(value, "toarray"):
        raise TypeError(f"{name} is sparse, and must be dense: give {name}.toarray()")
    array = np.asarray(value)
    if array.dtype.kind == "O":
        absent = sum(type(v).__name__ in ABSENT for v in array.flat)
        if absent and array.ndim:
            raise ValueError(
                f"{name} has {absent} missing values (pandas' NA, NaT or None): drop those rows from "
                "X, y and everything else that goes by rows, or impute them"
            )
        try:
            array = array.astype("float64")
        except (TypeError, ValueError):
            kinds = {"year": DATES, "points": "of a grid give grid.points, and grid.ravel(y)"}
            found = (way for sign, way in kinds.items() if any(hasattr(v, sign) for v in array.flat))
            way = next(found, TEXT)
            raise TypeError(f"{name} must be numeric, got dtype object: {way}") from None
    if array.dtype.kind not in "fiub":
        way = {"m": DATES, "M": DATES, "U": TEXT, "S": TEXT, "T": TEXT}.get(array.dtype.kind, "")
        raise TypeError(f"{name} must be numeric, got dtype {array.dtype}{way and f': {way}'}")
    return np.asarray(array, dtype="float64")


def check_dims(dims, data: Data, name: str) -> None:
    """Raise ValueError if a dimension that the model knows has another length than `data` has rows."""
    if dims is None:
        return
    model = model_here()
    names = [dims] if isinstance(dims, str) else list(dims)
    if len(names) != 1:
        raise ValueError(f"dims must name one dimension, that of the rows, got {dims!r}")
    length = model.dim_lengths.get(names[0])
    if length is None or data.mutable:
        return
    length, rows = int(evaluate([length])[0]), data.value.shape[0]
    if length != rows:
        raise ValueError(
            f"dims={names[0]!r} has length {length}, but {name} has {rows} rows (those with targets, where "
            "some are missing): give dims= of as many"
        )
