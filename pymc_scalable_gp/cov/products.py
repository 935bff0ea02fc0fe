"""1-D factors of ``pm.gp.cov`` kernels that are products over input dimensions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from itertools import chain, groupby
from itertools import product as cartesian
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.cov import Add, BaseCovariance, Covariance, Exponentiated, ExpQuad, Periodic, Prod, Stationary
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.cov.embedded import EmbeddedKernel
from pymc_scalable_gp.cov.kernels import from_square_distance, kernel_matrix, traits
from pymc_scalable_gp.cov.objects import Hamming
from pymc_scalable_gp.cov.queries import is_categorical, is_stationary
from pymc_scalable_gp.utils.classes import Listed
from pymc_scalable_gp.utils.internals import parts_of


def Product(
    kernel: type[Covariance], input_dim: int, *, active_dims: Sequence[int] | None = None, **params
) -> BaseCovariance:
    r"""Product of one 1-D kernel over dimensions, ``k(x, z) = prod_i k_1(x_i, z_i)``.

    Parameters
    ----------
    kernel : subclass of pm.gp.cov.Covariance
        For instance ``pm.gp.cov.Matern52``.
    input_dim : int
        Number of columns of X.
    active_dims : sequence of int, optional
        Columns that the kernel uses; all `input_dim` when left out.
    **params
        Arguments of `kernel`: a vector with an entry for each active dimension is split, anything
        else is shared.

    Returns
    -------
    pm.gp.cov.Covariance
        Usable in every ``pm.gp`` class too. For d > 1 and a Matern kernel this is *not* the
        isotropic kernel ``pm.gp.cov.Matern52(d, ls=ell)``.

    Raises
    ------
    TypeError, ValueError
        For anything but a class of kernels, or a vector without an entry for each active dimension.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> cov = sgp.cov.Product(pm.gp.cov.Matern52, 2, ls=[1.0, 2.0])
    >>> first = pm.gp.cov.Matern52(2, ls=1.0, active_dims=[0])
    >>> second = pm.gp.cov.Matern52(2, ls=2.0, active_dims=[1])
    >>> X = np.array([[0.0, 0.0], [1.0, 1.0]])
    >>> cov(X).eval().round(3)
    array([[1.   , 0.434],
           [0.434, 1.   ]])
    >>> (first * second)(X).eval().round(3)
    array([[1.   , 0.434],
           [0.434, 1.   ]])
    """
    if not isinstance(kernel, type) or "active_dims" not in signature(kernel).parameters:
        name = getattr(kernel, "__name__", type(kernel).__name__)
        raise TypeError(
            f"kernel must be a class of kernels of one input, such as pm.gp.cov.Matern52, got {name}: "
            "kernels that exist already are multiplied, k1 * k2"
        )
    dims = list(range(input_dim)) if active_dims is None else list(active_dims)
    # Functions, their arguments, and what is left out.
    shared = {k: v for k, v in params.items() if v is None or callable(v) or k == "args"}
    tensors = {k: pt.as_tensor_variable(v) for k, v in params.items() if k not in shared}
    for name, value in tensors.items():
        length = value.type.shape[0] if value.ndim else None
        if value.ndim > 1 or (length is not None and length != len(dims)):
            raise ValueError(
                f"{name} of shape {value.type.shape} does not match {len(dims)} active dimensions: "
                "give a scalar or a vector with an entry for each"
            )
    factors = [
        kernel(
            input_dim,
            active_dims=[dim],
            **shared,
            **{name: value[i] if value.ndim else value for name, value in tensors.items()},
        )
        for i, dim in enumerate(dims)
    ]
    return factors[0] if len(factors) == 1 else Prod(factors)


@dataclass(frozen=True)
class Entry:
    """Place in a parameter that is one value for all dimensions or one for each."""

    whole: TensorVariable
    place: int

    def scalar(self) -> TensorVariable:
        """Value of this dimension."""
        if not self.whole.ndim:
            return self.whole
        return self.whole[0 if self.whole.type.shape == (1,) else self.place]


@dataclass(frozen=True)
class Factor:
    """A kernel on one input dimension; `prototype` and `ls` are set for stacked ones."""

    dim: int
    gram: Callable[[TensorVariable, TensorVariable], TensorVariable]  # (a,), (b,) -> (a, b)
    prototype: Any = None
    ls: Entry | None = None
    stationary: bool = False
    categorical: bool | None = False  # as :func:`is_categorical`

    def __pow__(self, power) -> "Factor":
        return replace(self, gram=lambda a, b: self.plain_gram(a, b) ** power, prototype=None)

    def plain_gram(self, a, b) -> TensorVariable:
        """Kernel matrix (na, nb) between coordinates (na,) and (nb,)."""
        if self.prototype is None:
            return self.gram(a, b)
        a, b = pt.as_tensor_variable(a), pt.as_tensor_variable(b)
        squared = ((a[:, None] - b[None, :]) / self.ls.scalar()) ** 2
        return from_square_distance(self.prototype, squared)


@dataclass(frozen=True)
class ProductTerm:
    """``scale * prod_i k_i(x_i, z_i)`` over the columns `dims`."""

    scale: TensorVariable
    factors: tuple[Factor, ...]  # those of one prototype next to one another

    @property
    def dims(self) -> list[int]:
        """Columns of X, in the order of the factors."""
        return [factor.dim for factor in self.factors]

    def restricted(self, places: Sequence[int]) -> "ProductTerm":
        """The product of the factors at `places` (increasing) alone, with the same scale."""
        return ProductTerm(self.scale, tuple(self.factors[i] for i in places))

    def __pow__(self, power) -> "ProductTerm":
        return ProductTerm(self.scale**power, tuple(factor**power for factor in self.factors))

    def moved(self, by: int) -> "ProductTerm":
        """The product over columns that come `by` later."""
        return ProductTerm(self.scale, tuple(replace(f, dim=f.dim + by) for f in self.factors))

    def gram(self, a: TensorVariable, b: TensorVariable) -> TensorVariable:
        """1-D kernel matrices (d, na, nb) without the scale, for points `a` (d, na), `b` (d, nb)."""
        parts, start = [], 0
        for _, same in groupby(self.factors, lambda factor: type(factor.prototype)):
            group = tuple(same)
            stop = start + len(group)
            parts.append(_group_gram(group, a[start:stop], b[start:stop]))
            start = stop
        return parts[0] if len(parts) == 1 else pt.concatenate(parts, axis=0)


def _group_gram(group, a, b):
    if group[0].prototype is None:
        return pt.stack([f.gram(a[i], b[i]) for i, f in enumerate(group)])
    ls = [f.ls for f in group]
    whole = ls[0].whole
    in_order = all(entry.whole is whole and entry.place == k for k, entry in enumerate(ls))
    if in_order and whole.ndim:
        # One ARD kernel, or its first factors: the lengthscales as they are.
        stacked = whole[: len(ls)]
    else:
        stacked = pt.stack([entry.scalar() for entry in ls])
    # The squared differences do not depend on the lengthscales: they come first, in one pass.
    squared = pt.sqr(a[:, :, None] - b[:, None, :]) * (1.0 / stacked**2)[:, None, None]
    return from_square_distance(group[0].prototype, squared)


def product_terms(cov: BaseCovariance, d: int | None = None) -> list[ProductTerm]:
    """Write a covariance as a sum of scaled products of 1-D kernels.

    Columns that count from the last do so among `d`, where it is given. Raises ValueError for a part that
    is no product over dimensions (Matern, RatQuad or Linear in d > 1, ...), white noise, or an array.
    """
    return [_term(parts, d) for parts in _expand(cov)]


def one_factor(cov: Covariance, d: int | None = None) -> ProductTerm:
    """A kernel of one column, whatever it is made of, as a product of one factor."""
    return _term([cov], d)


def _expand(cov) -> list[list]:
    """Sum of products: a list (sum) of lists (product) of scalars, atomic kernels, and terms of `Kron`."""
    if isinstance(cov, pm.gp.cov.WhiteNoise):
        raise ValueError("WhiteNoise is no part of the function: drop it, or give it as sigma=")
    if isinstance(cov, EmbeddedKernel) and (products := cov.as_products()) is not None:
        return _expand(products)
    if isinstance(cov, Add | Prod):
        inner = [_expand(part) for part in parts_of(cov)]
        if isinstance(cov, Add):
            if cov.n_dims == 1 and all(isinstance(part, Covariance) for part in parts_of(cov)):
                return [[cov]]  # one 1-D kernel
            return [parts for expansion in inner for parts in expansion]
        return [list(chain.from_iterable(choice)) for choice in cartesian(*inner)]
    if isinstance(cov, pm.gp.cov.Kron):  # each factor has the columns after those of the one before
        starts = np.cumsum([0, *cov.input_dims]).tolist()
        inner = [product_terms(part, part.input_dim) for part in parts_of(cov)]
        return [
            [term.moved(k) for term, k in zip(terms, starts, strict=False)] for terms in cartesian(*inner)
        ]
    if isinstance(cov, Exponentiated) and len(inner := _expand(cov.kernel)) == 1:
        parts = [part.c if isinstance(part, pm.gp.cov.Constant) else part for part in inner[0]]
        # Of a product, the product of powers; PyTensor takes that of 2.0 in float32.
        known = BaseCovariance | ProductTerm
        parts = [p if isinstance(p, known) else pt.as_tensor(p).astype("float64") for p in parts]
        return [[part**cov.power for part in parts]]
    return [[cov]]


def _term(parts, d) -> ProductTerm:
    scale = pt.as_tensor_variable(np.float64(1.0))
    by_dim: dict[int, list[Factor]] = {}
    for part in parts:
        if isinstance(part, pm.gp.cov.Constant):
            part = part.c
        if not isinstance(part, BaseCovariance | ProductTerm):
            value = pt.as_tensor_variable(part)
            if any(length != 1 for length in value.type.shape):
                raise ValueError(
                    f"a kernel is scaled by an array of shape {value.type.shape}: only scalars keep "
                    "it a product over dimensions"
                )
            scale = scale * value.sum()  # of one entry
            continue
        if isinstance(part, ProductTerm):
            scale, found = scale * part.scale, part.factors
        else:
            found = _factors(part)
        for factor in found:
            dim = factor.dim if d is None or factor.dim >= 0 else factor.dim + d
            by_dim.setdefault(dim, []).append(replace(factor, dim=dim))
    groups: dict[Any, list[Factor]] = {}
    for dim, factors in sorted(by_dim.items()):
        factor = factors[0] if len(factors) == 1 else _multiply(dim, factors)
        groups.setdefault(type(factor.prototype), []).append(factor)
    return ProductTerm(scale.astype("float64"), tuple(chain.from_iterable(groups.values())))


def _multiply(dim, factors):
    def gram(a, b):
        out = factors[0].plain_gram(a, b)
        for other in factors[1:]:
            out = out * other.plain_gram(a, b)
        return out

    kinds = [f.categorical for f in factors]
    categorical = True if True in kinds else None if None in kinds else False
    return Factor(dim, gram, None, None, all(f.stationary for f in factors), categorical)


def _factors(kernel: Covariance) -> list[Factor]:
    """1-D factors of an atomic kernel."""
    dims = [int(dim) for dim in kernel.active_dims]
    if isinstance(kernel, Exponentiated):
        return [factor**kernel.power for factor in _factors(kernel.kernel)]
    if traits(kernel).stacked and (len(dims) == 1 or type(kernel) is ExpQuad):
        ls = pt.as_tensor_variable(kernel.ls).astype("float64")
        return [Factor(dim, None, kernel, Entry(ls, k), True) for k, dim in enumerate(dims)]
    if len(dims) == 1:
        own = np.zeros(kernel.input_dim)
        own[dims] = 1.0  # the kernel picks its column of rows that are zero elsewhere
        return [
            Factor(
                dims[0],
                lambda a, b: kernel_matrix(kernel, a[:, None] * own, b[:, None] * own),
                stationary=is_stationary(kernel),
                categorical=is_categorical(kernel),
            )
        ]
    if type(kernel) is Hamming:
        return [
            factor
            for dim in dims
            for factor in _factors(Hamming(kernel.input_dim, kernel.ls, active_dims=[dim]))
        ]
    if type(kernel) is Periodic:
        ls, period = (pt.as_tensor_variable(v) for v in (kernel.ls, kernel.period))
        one = [
            Periodic(1, period=Entry(period, k).scalar(), ls=Entry(ls, k).scalar())
            for k in range(len(dims))
        ]
        return [
            Factor(dim, lambda a, b, k=k: kernel_matrix(k, a[:, None], b[:, None]), stationary=True)
            for dim, k in zip(dims, one, strict=True)
        ]
    name = type(kernel).__name__
    has_one_input = isinstance(kernel, Stationary) and type(kernel).__module__ == Stationary.__module__
    product = (
        f"sgp.cov.Product(pm.gp.cov.{name}, {kernel.input_dim}, ...), the product of 1-D {name} "
        "kernels (a different kernel), or ExpQuad, or "
    )
    raise ValueError(
        f"{name} on {len(dims)} dimensions is not a product of 1-D kernels, which this method needs. "
        f"Use {product if has_one_input else ''}a class that takes any kernel: "
        f"{Listed.names_with('any kernel')}"
    )
