"""Structured symmetric and rectangular matrices as small immutable expressions of tensors.

Each operator knows how to multiply and what its diagonal is, in time and memory far below those of
the dense matrix. Parameters are tensors, so products can be differentiated in them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.linops.base import LinearOperator, check_ndim, static_length
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.ops.toeplitz import toeplitz_matvec


@dataclass(frozen=True, eq=False)
class Dense(LinearOperator):
    """A matrix (p, m) as it is.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A = sgp.linops.Dense(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> (A @ np.ones(2)).eval()
    array([3., 7.])
    >>> A.diag().eval()
    array([1., 4.])
    """

    matrix: TensorVariable

    def __post_init__(self):
        super().__post_init__()
        check_ndim("Dense", "a matrix", self.matrix, 2)

    @property
    def shape(self):
        return tuple(static_length(self.matrix, axis, "Dense") for axis in (0, 1))

    @property
    def T(self):
        return Dense(self.matrix.T)

    def matmat(self, V):
        return product(self.matrix, V)

    def diag(self):
        rows, columns = self.matrix.type.shape
        if None not in (rows, columns) and rows != columns:
            raise ValueError(f"only a square matrix has a diagonal here, got shape {rows, columns}")
        return pt.diag(self.matrix)


@dataclass(frozen=True, eq=False)
class LowRank(LinearOperator):
    """``F F'`` for a factor F (n, r).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A = sgp.linops.LowRank(np.array([[1.0], [2.0]]))
    >>> A.to_dense().eval()
    array([[1., 2.],
           [2., 4.]])
    """

    factor: TensorVariable

    def __post_init__(self):
        super().__post_init__()
        check_ndim("LowRank", "a factor (n, r)", self.factor, 2)

    @property
    def shape(self):
        n = static_length(self.factor, 0, "LowRank")
        return n, n

    def matmat(self, V):
        """``F (F' V)``."""
        return product(self.factor, product(self.factor, V, transpose_a=True))

    def diag(self):
        """Squared norms of the rows of F."""
        return (self.factor**2).sum(axis=1)


@dataclass(frozen=True, eq=False)
class Toeplitz(LinearOperator):
    """Symmetric Toeplitz matrix, by its first column (m,): a stationary kernel on a regular axis.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> sgp.linops.Toeplitz(np.array([2.0, 1.0, 0.5])).to_dense().eval().round(3)
    array([[2. , 1. , 0.5],
           [1. , 2. , 1. ],
           [0.5, 1. , 2. ]])
    """

    column: TensorVariable

    def __post_init__(self):
        super().__post_init__()
        check_ndim("Toeplitz", "a first column", self.column, 1)

    @property
    def shape(self):
        m = static_length(self.column, 0, "Toeplitz")
        return m, m

    def matmat(self, V):
        """Product by FFT, O(k m log m)."""
        return toeplitz_matvec(self.column, V)

    def diag(self):
        """The first entry, m times."""
        return pt.ones(self.shape[0]) * self.column[0]


@dataclass(frozen=True, eq=False)
class Kronecker(LinearOperator):
    r"""Kronecker product of factors, square or not: a product kernel on a grid.

    The rows run through the grid with the last axis fastest, as ``numpy.ravel`` does. A product costs
    one product with each factor; nothing larger than the result's grid is formed.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A, B = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> (sgp.linops.Kronecker([A, B]) @ np.arange(4.0)).eval()
    array([4.5, 6. , 7.5, 9. ])
    >>> np.kron(A, B) @ np.arange(4.0)
    array([4.5, 6. , 7.5, 9. ])
    """

    factors: Sequence[LinearOperator]

    def __post_init__(self):
        factors = tuple(f if isinstance(f, LinearOperator) else Dense(f) for f in self.factors)
        if not factors:
            raise ValueError("Kronecker needs at least one factor")
        object.__setattr__(self, "factors", factors)

    @property
    def shape(self):
        rows, columns = zip(*(f.shape for f in self.factors), strict=True)
        return int(np.prod(rows)), int(np.prod(columns))

    @property
    def T(self):
        return Kronecker(tuple(f.T for f in self.factors))

    def matmat(self, V):
        """One factor after the other: each is applied to the first axis, which then moves last."""
        k = V.shape[1] if V.type.shape[1] is None else V.type.shape[1]
        size = self.shape[1]  # entries for each column of V
        out = V
        for factor in self.factors:
            p, m = factor.shape
            out = factor.matmat(out.reshape((m, (size // m) * k)))
            size = size // m * p
            out = out.T
        # The columns of V are in front now, then the axes in their order.
        return out.reshape((k, size)).T

    def diag(self):
        if any(rows != columns for rows, columns in (f.shape for f in self.factors)):
            raise ValueError("the diagonal is known for square factors: take diag(A.to_dense())")
        out = self.factors[0].diag()
        for factor in self.factors[1:]:
            out = (out[:, None] * factor.diag()).ravel()
        return out


@dataclass(frozen=True, eq=False)
class Masked(LinearOperator):
    """Rows and columns of a larger operator: ``S_rows A S_columns'``, such as a grid's observed cells.

    Parameters
    ----------
    operator : LinearOperator
    rows, columns : integer arrays
        Places kept; `columns` are the `rows` when left out.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A = sgp.linops.Dense(np.arange(9.0).reshape(3, 3))
    >>> sgp.linops.Masked(A, np.array([0, 2])).to_dense().eval()
    array([[0., 2.],
           [6., 8.]])
    """

    operator: LinearOperator
    rows: np.ndarray
    columns: np.ndarray | None = None

    def __post_init__(self):
        super().__post_init__()
        rows = np.asarray(self.rows)
        columns = rows if self.columns is None else np.asarray(self.columns)
        for places, size in zip((rows, columns), self.operator.shape, strict=True):
            if places.ndim != 1 or not np.issubdtype(places.dtype, np.integer):
                raise TypeError("Masked needs vectors of integer places")
            if places.size and not (0 <= places.min() and places.max() < size):
                raise ValueError(f"a place lies outside 0..{size - 1}")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "columns", columns)

    @property
    def shape(self):
        return len(self.rows), len(self.columns)

    @property
    def T(self):
        return Masked(self.operator.T, self.columns, self.rows)

    def matmat(self, V):
        """Spread V over all columns, multiply, keep the rows."""
        k = V.shape[1] if V.type.shape[1] is None else V.type.shape[1]
        spread = pt.zeros((self.operator.shape[1], k))
        # Added, not set: a place may occur twice.
        spread = pt.inc_subtensor(spread[self.columns], V)
        return self.operator.matmat(spread)[self.rows]

    def diag(self):
        """Entries of the operator's diagonal; needs equal rows and columns."""
        if not np.array_equal(self.rows, self.columns):
            raise ValueError("only an operator with equal rows and columns has a diagonal here")
        return self.operator.diag()[self.rows]
