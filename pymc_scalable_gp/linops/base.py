"""Matrices that are known by their products, and the closed operations on them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import add

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.graphs import known_shape


def _as_tensor(value) -> TensorVariable:
    """A tensor, of floats for integers below 64 bits: products of these would wrap around."""
    tensor = pt.as_tensor_variable(value)
    small = tensor.dtype.startswith(("int", "uint")) and tensor.dtype != "int64"
    return tensor.astype("float64") if small else tensor


class LinearOperator(ABC):
    """A matrix that is known by its products.

    Subclasses give :attr:`shape`, :meth:`matmat` and :meth:`diag`, and :attr:`T` unless they are symmetric.
    ``A @ V``, ``A + B``, ``A - B``, ``c * A``, ``A * c``, ``-A`` and ``A.add_diagonal(d)`` build new
    operators or products.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A = sgp.linops.LowRank(np.array([[1.0], [2.0]]))
    >>> B = (2.0 * A).add_diagonal(0.5)
    >>> isinstance(B, sgp.linops.LinearOperator), B.shape
    (True, (2, 2))
    >>> B.to_dense().eval()
    array([[2.5, 4. ],
           [4. , 8.5]])
    """

    __array_ufunc__ = None  # NumPy leaves arithmetic to it

    def __post_init__(self):
        """Fields that are tensors become such; TypeError for arrays in the place of operators."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is TensorVariable:
                object.__setattr__(self, field.name, _as_tensor(value))
            elif field.type == tuple[TensorVariable, ...]:
                object.__setattr__(self, field.name, tuple(map(_as_tensor, value)))
            elif field.type is LinearOperator and not isinstance(value, LinearOperator):
                raise TypeError(
                    f"{type(self).__name__} takes an operator, got {type(value).__name__}: make a matrix "
                    "one by linops.Dense"
                )

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns (static)."""

    @property
    def parameters(self) -> tuple[TensorVariable, ...]:
        """The tensors that it is made of, its attributes in turn."""
        return tuple(tensor for each in vars(self).values() for tensor in _tensors(each))

    @property
    def T(self) -> "LinearOperator":
        """Transpose: itself, unless a subclass says otherwise."""
        return self

    @abstractmethod
    def matmat(self, V: TensorVariable) -> TensorVariable:
        """Product with a matrix (columns, k)."""

    def matvec(self, v: TensorVariable) -> TensorVariable:
        """Product with a vector (columns,)."""
        return self.matmat(pt.as_tensor_variable(v)[:, None])[:, 0]

    @abstractmethod
    def diag(self) -> TensorVariable:
        """Diagonal of a square operator."""

    def to_dense(self) -> TensorVariable:
        """The matrix itself: for tests and small sizes."""
        return self.matmat(pt.eye(self.shape[1]))

    def add_diagonal(self, d) -> "LinearOperator":
        """The operator plus ``diag(d)``, with d a scalar or a vector."""
        return Sum((self, Diagonal(d, self.shape[0])))

    def __matmul__(self, V):
        if isinstance(V, LinearOperator) or (V := pt.as_tensor_variable(V)).ndim not in (1, 2):
            got = type(V).__name__ if isinstance(V, LinearOperator) else f"{V.ndim} dimensions"
            raise TypeError(f"an operator is multiplied with a vector or a matrix, got {got}")
        columns, given = known_shape(self)[1], V.type.shape[0]
        if None not in (columns, given) and columns != given:
            raise ValueError(f"an operator of shape {self.shape} needs {columns} rows, got {given}")
        if given is None:
            V = pt.specify_shape(V, (columns, *V.type.shape[1:]))
        return self.matvec(V) if V.ndim == 1 else self.matmat(V)

    def __add__(self, other: "LinearOperator") -> "LinearOperator":
        return Sum((self, other))

    __radd__ = __add__

    def __sub__(self, other: "LinearOperator") -> "LinearOperator":
        return self + -other

    def __neg__(self) -> "LinearOperator":
        return Scaled(-1.0, self)

    def __mul__(self, scale) -> "LinearOperator":
        return Scaled(scale, self)

    __rmul__ = __mul__


def _tensors(attribute) -> tuple[TensorVariable, ...]:
    if isinstance(attribute, TensorVariable):
        return (attribute,)
    if isinstance(attribute, LinearOperator):
        return attribute.parameters
    parts = attribute if isinstance(attribute, tuple) else ()
    return tuple(tensor for part in parts for tensor in _tensors(part))


def static_length(tensor: TensorVariable, axis: int, name: str) -> int:
    """Length that has to be known."""
    size = tensor.type.shape[axis]
    if size is None:
        raise ValueError(f"{name} needs a static shape: wrap it in pt.specify_shape")
    return int(size)


def check_ndim(name: str, needs: str, tensor: TensorVariable, *allowed: int) -> None:
    """Raise ValueError for other numbers of dimensions than those allowed."""
    if tensor.ndim not in allowed:
        raise ValueError(f"{name} needs {needs}, got {tensor.ndim} dimensions")


@dataclass(frozen=True, eq=False)
class Diagonal(LinearOperator):
    """``diag(d)`` for a vector d, or a scalar d and a size.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> (sgp.linops.Diagonal(np.array([1.0, 2.0])) @ np.array([3.0, 4.0])).eval()
    array([3., 8.])
    >>> sgp.linops.Diagonal(0.5, 3).shape
    (3, 3)
    """

    d: TensorVariable
    size: int | None = None

    def __post_init__(self):
        super().__post_init__()
        check_ndim("Diagonal", "a vector, or a scalar and a size", self.d, 0, 1)
        if self.d.ndim == 0 and self.size is None:
            raise ValueError("Diagonal of a scalar needs a size")
        if self.size is not None:
            check_count("size", self.size, 0)
        if self.d.ndim and None not in (length := self.d.type.shape[0], self.size) and length != self.size:
            raise ValueError(f"Diagonal: {length} values do not fit size {self.size}")

    @property
    def shape(self):
        size = static_length(self.d, 0, "Diagonal") if self.size is None else self.size
        return size, size

    def matmat(self, V):
        return V * (self.d[:, None] if self.d.ndim else self.d)

    def diag(self):
        return self.d if self.d.ndim else self.d * pt.ones(self.size)


@dataclass(frozen=True, eq=False)
class Scaled(LinearOperator):
    """``c A`` for a scalar c.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A = 3.0 * sgp.linops.Dense(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> type(A).__name__
    'Scaled'
    >>> A.to_dense().eval()
    array([[ 3.,  6.],
           [ 9., 12.]])
    """

    scale: TensorVariable
    operator: LinearOperator

    def __post_init__(self):
        super().__post_init__()
        check_ndim("Scaled", "a scalar", self.scale, 0)

    @property
    def shape(self):
        return self.operator.shape

    @property
    def T(self):
        return Scaled(self.scale, self.operator.T)

    def matmat(self, V):
        return self.scale * self.operator.matmat(V)

    def diag(self):
        return self.scale * self.operator.diag()


@dataclass(frozen=True, eq=False)
class Sum(LinearOperator):
    """``A_1 + A_2 + ...``, all of one shape.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A = sgp.linops.LowRank(np.array([[1.0], [2.0]])) + sgp.linops.Diagonal(0.5, 2)
    >>> type(A).__name__
    'Sum'
    >>> A.to_dense().eval()
    array([[1.5, 2. ],
           [2. , 4.5]])
    """

    terms: Sequence[LinearOperator]

    def __post_init__(self):
        if not all(isinstance(term, LinearOperator) for term in self.terms):
            raise TypeError("only operators can be added to operators: make a matrix one by linops.Dense")
        shapes = {term.shape for term in self.terms}
        if len(shapes) != 1:
            raise ValueError(f"cannot add operators of shapes {sorted(shapes)}")
        object.__setattr__(self, "terms", tuple(self.terms))

    @property
    def shape(self):
        return self.terms[0].shape

    @property
    def T(self):
        return Sum(tuple(term.T for term in self.terms))

    def matmat(self, V):
        return reduce(add, (term.matmat(V) for term in self.terms))

    def diag(self):
        return reduce(add, (term.diag() for term in self.terms))
