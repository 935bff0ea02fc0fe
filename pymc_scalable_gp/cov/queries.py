"""What a covariance is made of: its parts, columns and scale."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.cov import Add, BaseCovariance, Combination, Constant, Covariance, Exponentiated, Prod
from pytensor.compile.ops import ViewOp
from pytensor.scalar.basic import Mul
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_scalable_gp.cov.embedded import EmbeddedKernel
from pymc_scalable_gp.cov.kernels import traits
from pymc_scalable_gp.cov.objects import Numeric
from pymc_scalable_gp.utils.checks import Refuse
from pymc_scalable_gp.utils.compiled import evaluate, present_shape
from pymc_scalable_gp.utils.internals import parts_of
from pymc_scalable_gp.utils.warn import warn

# Distance of labels, as of outputs or groups, where points are laid out: in units of the inputs' range.
LAID_APART = 1e6

# Longitudes that span as many degrees leave a gap, if any, that the margins of a range cover.
_AROUND = 330.0

# Kernels of what a function makes of the inputs, or of a kernel.
_WRAPPED = pm.gp.cov.WarpedInput | pm.gp.cov.ScaledCov


def leaves(cov_func) -> list:
    """The kernels and scalars that a sum, product or power is made of."""
    if isinstance(cov_func, Combination):
        return [leaf for factor in parts_of(cov_func) for leaf in leaves(factor)]
    if isinstance(cov_func, Exponentiated):
        return leaves(cov_func.kernel)
    return [cov_func]


def is_stationary(cov_func) -> bool:
    """Whether the kernel is a function of ``x - z`` alone."""
    kernels = (leaf for leaf in leaves(cov_func) if isinstance(leaf, BaseCovariance))
    return all(traits(kernel).stationary for kernel in kernels)


def is_categorical(cov_func) -> bool | None:
    """Whether a kernel compares categories, so that nothing lies between two values of its column.

    Kernels say so by an attribute ``categorical``. Those of `pm.gp.cov` are known; None stands for
    another kernel without the attribute.
    """
    kinds = [_leaf_is_categorical(leaf) for leaf in leaves(cov_func)]
    return True if True in kinds else None if None in kinds else False


def _leaf_is_categorical(leaf):
    if isinstance(leaf, _WRAPPED):
        return is_categorical(leaf.cov_func)
    known = traits(leaf).categorical if isinstance(leaf, BaseCovariance) else False
    return getattr(leaf, "categorical", known)


def categorical_columns(cov_func, d: int, wrapped: bool = True, alone: bool = False) -> np.ndarray:
    """Columns of X (n, d) with categories, where a number between two of them is none.

    With those that a `wrapped` kernel, one of warped inputs or with a scale along them, looks at; without
    those of a kernel that looks at several, if `alone`.
    """
    kinds = [leaf for leaf in leaves(cov_func) if _leaf_is_categorical(leaf)]
    if not wrapped:
        kinds = [leaf for leaf in kinds if not isinstance(leaf, _WRAPPED)]
    found = [getattr(leaf, "category_dims", leaf.active_dims) for leaf in kinds]
    found = [columns for columns in found if len(columns) == 1 or not alone]
    return np.unique(np.concatenate([np.zeros(0, dtype=int), *found]).astype(int) % d)


def check_kernel(
    cov_func, noise: str = "give it as sigma=, the noise's standard deviation", arrays: bool = False
) -> None:
    """Refuse what is no covariance, holds white noise, or does not go with its columns or any rows.

    `noise` says what becomes of `WhiteNoise`, which no smooth feature can represent; `arrays` whether a
    matrix may stand in a sum or product: it belongs to the rows of one kernel matrix. Raises TypeError or
    ValueError.
    """
    if not isinstance(cov_func, BaseCovariance):
        raise TypeError(f"cov_func must be a pm.gp.cov kernel, got {type(cov_func).__name__}")
    for leaf in leaves(cov_func):
        if isinstance(leaf, pm.gp.cov.WhiteNoise):
            raise ValueError(f"WhiteNoise is no part of the function: {noise}")
        if isinstance(leaf, _WRAPPED):
            check_kernel(leaf.cov_func, noise, arrays)
        if isinstance(leaf, pm.gp.cov.ScaledCov):
            used_columns(leaf.cov_func, len(leaf.active_dims), f"{_handed(leaf)} of ScaledCov")
        _check_lengthscales(leaf)
        scale = leaf.c if isinstance(leaf, Constant) else leaf
        tensor = pt.constant(1.0) if isinstance(scale, BaseCovariance) else pt.as_tensor_variable(scale)
        is_matrix = scale is leaf and arrays and tensor.ndim == 2
        if not is_matrix and any(length != 1 for length in tensor.type.shape):
            raise ValueError(
                f"cov_func contains an array of shape {present_shape(tensor)}, which belongs to the rows "
                "of one kernel matrix: only scalars can scale a kernel at all inputs, such as eta[0] of a "
                "vector. For weights that depend on the input take pm.gp.cov.ScaledCov; a fixed matrix is "
                "for sgp.ExactMarginal alone"
            )


def _check_lengthscales(leaf) -> None:
    ls = getattr(leaf, "ls", None)
    own = isinstance(leaf, Covariance) and not isinstance(leaf, EmbeddedKernel)
    if own and isinstance(ls, TensorVariable) and ls.ndim == 1:
        count, columns = present_shape(ls)[0], len(leaf.active_dims)
        if count not in (None, 1, columns):
            raise ValueError(
                f"{type(leaf).__name__} has {count} lengthscales for {columns} columns: give ls= as "
                "a scalar or one for each column (input_dim, or active_dims, says how many)"
            )
    if isinstance(ls, TensorVariable) and np.any(zero := _always_zero(ls)):
        place = f"lengthscale {np.flatnonzero(zero)[0]}" if np.ndim(zero) else "the lengthscale"
        raise ValueError(
            f"{place} of {type(leaf).__name__} is 0 whatever its prior: is it in units of the standard "
            "deviation of a column that is constant? Leave that column out"
        )


def _always_zero(tensor) -> np.ndarray | bool:
    """Where a product is 0 because a constant factor is."""
    if isinstance(tensor, TensorConstant):
        return tensor.data == 0.0
    op = getattr(tensor.owner, "op", None)
    if isinstance(op, DimShuffle | ViewOp):
        return _always_zero(tensor.owner.inputs[0])
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, Mul):
        return np.logical_or.reduce(np.broadcast_arrays(*map(_always_zero, tensor.owner.inputs)))
    return False


def used_columns(cov_func, d: int, name: str = "X") -> np.ndarray:
    """Columns of X (n, d) that the kernel looks at, all for a constant one; ValueError for one beyond d."""
    kernels = [leaf for leaf in leaves(cov_func) if isinstance(leaf, Covariance)]
    columns = np.unique(np.concatenate([leaf.active_dims for leaf in kernels] or [np.arange(d)]))
    if len(beyond := columns[(columns >= d) | (columns < -d)]):
        raise ValueError(f"the kernel uses column {beyond[-1]}, but {name} has {d} columns")
    return np.unique(columns % d)  # some may be counted from the last


def used_range(cov_func, low, high) -> tuple[np.ndarray, np.ndarray]:
    """A range of inputs (d,), without ends where the kernel looks at nothing, or at all longitudes."""
    columns = np.arange(len(low))
    used = np.isin(columns, used_columns(cov_func, len(low)))
    used &= ~np.isin(columns, turning_columns(cov_func, len(low))) | (high - low < _AROUND)
    return np.where(used, low, -np.inf), np.where(used, high, np.inf)


def turning_columns(cov_func, d: int) -> np.ndarray:
    """Columns of X (n, d) with longitudes, which every kernel that looks at them takes modulo 360."""
    kernels = [leaf for leaf in leaves(cov_func) if isinstance(leaf, Covariance)]
    of_each = [(k.active_dims % d, getattr(k, "turning_dims", k.active_dims[:0]) % d) for k in kernels]
    fixed = [column for columns, turning in of_each for column in np.setdiff1d(columns, turning)]
    return np.setdiff1d([column for _, turning in of_each for column in turning], fixed).astype(int)


def kept_matrix(cov_func) -> str | None:
    """Name of a kernel whose matrix is computed once, where inputs are known; None without one."""
    return next((type(leaf).__name__ for leaf in leaves(cov_func) if isinstance(leaf, Numeric)), None)


def fixed_matrices(cov_func) -> list[TensorVariable]:
    """Matrices in a sum or product of kernels, which belong to the rows of one kernel matrix."""
    found = []
    for leaf in leaves(cov_func):
        if isinstance(leaf, _WRAPPED):
            found += fixed_matrices(leaf.cov_func)
        elif not isinstance(leaf, BaseCovariance):
            tensor = pt.as_tensor_variable(leaf)
            found += [tensor] if tensor.ndim == 2 and tensor.type.shape != (1, 1) else []
    return found


def _handed(leaf, name: str = "X") -> str:
    """The inputs, in words, that a kernel with a scale along them hands on."""
    return f"{name}[:, {leaf.active_dims.tolist()}]"


def check_rows(cov_func, X: np.ndarray, name: str = "X") -> None:
    """Raise ValueError for inputs (n, d) whose columns or rows a part of the covariance does not take."""
    used_columns(cov_func, X.shape[1], name)
    for matrix in fixed_matrices(cov_func):
        if (rows := present_shape(matrix)[0]) not in (None, len(X)):
            raise ValueError(
                f"{name} has {len(X)} rows, but cov_func holds a fixed matrix of {rows}: one for each of "
                "the likelihood's, which are those with targets"
            )
    for leaf in leaves(cov_func):
        if isinstance(leaf, pm.gp.cov.ScaledCov):
            check_rows(leaf.cov_func, X[:, leaf.active_dims], _handed(leaf, name))
        elif isinstance(leaf, EmbeddedKernel):
            leaf.check_rows(X, name)
        elif isinstance(leaf, pm.gp.cov.Coregion):
            column, count = int(leaf.active_dims[0]) % X.shape[1], leaf.B.type.shape[0]
            check_labels(X, column, count, name, "output", "Coregion's W or B")


def check_labels(X, column: int, count: int | None, name: str, what: str, matrix: str) -> None:
    """Raise ValueError for labels in a column that are no whole numbers from 0 below `count`, if known."""
    labels = X[:, column]
    bad = (labels != np.floor(labels)) | (labels < 0) | (labels >= (np.inf if count is None else count))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        last = "" if count is None else f" below {count}, the rows of {matrix}"
        raise ValueError(
            f"{name} has {labels[row]:g} as {what} in row {row}, column {column}: {what}s are whole "
            f"numbers from 0{last}"
        )


def refuse_new_labels(cov_func, X: TensorVariable) -> TensorVariable:
    """Inputs (n, d), refused once ``pm.set_data`` gives them outputs that are no rows of a matrix."""
    for leaf in leaves(cov_func):
        if isinstance(leaf, pm.gp.cov.Coregion) and (count := leaf.B.type.shape[0]) is not None:
            column = int(leaf.active_dims[0]) % (X.type.shape[1] or leaf.input_dim)
            labels = X[:, column]
            known = pt.eq(labels, pt.floor(labels)) & (labels >= 0) & (labels < count)
            said = (
                f"X was replaced by rows whose outputs, column {column}, are no whole numbers from 0 below"
            )
            X = Refuse(f"{said} {count}, the rows of Coregion's W or B")(X, known.all())
    return X


def layout(cov_func, X, d: int, apart: float) -> TensorVariable:
    """Coordinates (n, q), without parameters, in which near rows of X (n, d) are neighbours.

    Rows with different labels, as of outputs or groups, are `apart`, whatever their other columns. If they
    differ in one of several columns, in which a kernel counts differences, they are not.
    """
    X = _stretched(cov_func, pt.as_tensor_variable(X), d, apart)
    found = {
        tuple(np.mod(leaf.active_dims, d)): leaf.embedded(X).layout
        for leaf in leaves(cov_func)
        if isinstance(leaf, EmbeddedKernel)
    }
    columns = used_columns(cov_func, d)
    if not found:
        return X[:, columns]
    return pt.concatenate([X[:, np.setdiff1d(columns, sum(found, ()))], *found.values()], axis=1)


def layout_values(cov_func, X: np.ndarray, apart: float) -> np.ndarray:
    """The same in numbers."""
    d = X.shape[1]
    if not is_embedded(cov_func):
        return _stretched(cov_func, X, d, apart)[:, used_columns(cov_func, d)]
    return evaluate([layout(cov_func, pt.constant(X), d, apart)])[0]


def _stretched(cov_func, X, d, apart):
    """X (n, d) with the columns of labels times `apart`."""
    labels = categorical_columns(cov_func, d, wrapped=False, alone=True)
    return X * np.where(np.isin(np.arange(d), labels), apart, 1.0) if labels.size else X


def is_embedded(cov_func) -> bool:
    """Whether a part of the covariance is a kernel of other inputs than X."""
    return any(isinstance(leaf, EmbeddedKernel) for leaf in leaves(cov_func))


def warn_unused_columns(cov_func, d: int, also: Sequence[int] = ()) -> None:
    """Warn, as PyMC does, of columns of d that no kernel was made for; `also` have another use."""
    counts = [leaf.input_dim for leaf in leaves(cov_func) if isinstance(leaf, Covariance)]
    known = min(counts, default=d)
    unused = sorted(set(range(known, d)) - set(also))
    if unused:
        warn(
            f"Only {known} column(s) out of {d} are being used to compute the covariance function: "
            f"nothing depends on column {', '.join(map(str, unused))} of X. Give the kernels "
            f"input_dim={d}; with active_dims=[...] beside it, if this is intended, nothing is said"
        )


def split_scale(cov_func) -> tuple[Any, list]:
    """Scalar factors of a kernel, multiplied, and the list of its other factors."""
    if isinstance(cov_func, Prod):
        parts = [split_scale(factor) for factor in parts_of(cov_func)]
        scale = pt.as_tensor_variable(np.float64(1.0))
        for value, _ in parts:
            scale = scale * value
        return scale, [kernel for _, kernels in parts for kernel in kernels]
    if isinstance(cov_func, Constant):
        return cov_func.c, []
    if isinstance(cov_func, BaseCovariance):
        return 1.0, [cov_func]
    return cov_func, []


def sum_of_products(cov_func) -> list[tuple[Any, list]]:
    """Scale and kernels of each summand of a kernel, as `split_scale`; of one if it is no sum."""
    scale, kernels = split_scale(cov_func)
    if len(kernels) != 1 or not isinstance(kernels[0], Add):
        return [(scale, kernels)]
    return [(scale * own, inner) for part in parts_of(kernels[0]) for own, inner in sum_of_products(part)]


def describe(cov_func) -> str:
    """A covariance in a line, such as ``eta ** 2 * ExpQuad(3)``."""
    if isinstance(cov_func, Combination):
        sign = " * " if isinstance(cov_func, Prod) else " + "
        texts = [describe(factor) for factor in parts_of(cov_func)]
        if isinstance(cov_func, Prod):
            pairs = zip(texts, parts_of(cov_func), strict=True)
            texts = [f"({t})" if isinstance(f, Add) else t for t, f in pairs]
        return sign.join(texts)
    if isinstance(cov_func, Exponentiated):
        return f"({describe(cov_func.kernel)}) ** {cov_func.power}"
    if isinstance(cov_func, Constant):
        return describe(cov_func.c)
    if isinstance(cov_func, Covariance):
        return f"{type(cov_func).__name__}({cov_func.input_dim})"
    if isinstance(cov_func, BaseCovariance):
        return type(cov_func).__name__
    return getattr(cov_func, "name", None) or "scale"
