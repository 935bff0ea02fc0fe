"""Normal vectors whose covariance has any structure, and one PyMC distribution for all of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import pytensor.tensor as pt
from pymc.distributions.distribution import Continuous, SymbolicRandomVariable
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import normalize_rng_param
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.utils.internals import register_logprob


@dataclass(frozen=True)
class _Place:
    """Placeholder of a parameter, by its number."""

    index: int


@dataclass(frozen=True, eq=False)
class StructuredNormal(ABC):
    """A multivariate normal of one vector, by its draws and its log density.

    Subclasses are frozen dataclasses. Fields that hold tensors, or tuples of tensors, become the
    parameters of a random variable, and its Op keeps the others: nothing in those may hold a
    variable of the model.
    """

    mean: TensorVariable  # (n,)

    @abstractmethod
    def draw(self, rng, size) -> tuple[Variable, TensorVariable]:
        """Next generator, and draws (..., n)."""

    @abstractmethod
    def logp(self, value: TensorVariable) -> TensorVariable:
        """Log density of one vector (n,)."""

    def prepared(self) -> "StructuredNormal":
        """The same, for several noises: what none of them changes is computed once."""
        return self

    def product(self, left: TensorVariable, right: TensorVariable) -> TensorVariable:
        """``l' K^-1 r`` of vectors (n,), K the covariance: half the difference of two log densities.

        The vectors should be of one length, or digits are lost.
        """
        middle = self.mean + right
        return 0.5 * (self.logp(middle - left) - self.logp(middle + left))

    def solve(self, values: TensorVariable) -> TensorVariable:
        """Inverse covariance times columns (n, s); NotImplementedError where there is no direct way."""
        raise NotImplementedError(f"{self.label} has no direct solution for several vectors")

    @property
    def label(self) -> str:
        """Name in errors and in the graph of a model."""
        return type(self).__name__

    def dist(self, **kwargs) -> TensorVariable:
        """Random variable outside a model."""
        return NormalVector.dist(self, **kwargs)

    def variable(self, name: str, **kwargs) -> TensorVariable:
        """Random variable of the model of the context."""
        return NormalVector(name, self, **kwargs)

    def parted(self) -> tuple["StructuredNormal", list[Variable]]:
        """The same normal with placeholders for its tensors, and the tensors."""
        params: list[Variable] = []

        def placed(value):
            if not isinstance(value, Variable):
                return value
            params.append(value)
            return _Place(len(params) - 1)

        return self._changed(placed), params

    def filled(self, params) -> "StructuredNormal":
        """The same normal with tensors in their places."""
        return self._changed(lambda value: params[value.index] if isinstance(value, _Place) else value)

    def _changed(self, change) -> Any:
        return replace(self, **{f.name: _mapped(change, getattr(self, f.name)) for f in fields(self)})


def _mapped(change, value):
    """`change` of a value, or of each entry of a tuple; a NamedTuple stays one."""
    if not isinstance(value, tuple):
        return change(value)
    found = [_mapped(change, each) for each in value]
    return type(value)(*found) if hasattr(value, "_fields") else tuple(found)


class NormalVectorRV(SymbolicRandomVariable):
    """Random graph of a :class:`StructuredNormal`, which `form` is with places for its inputs."""

    _ndim_supp = 1

    @classmethod
    def rv_op(cls, *params, form: StructuredNormal, rng=None, size=None):
        """Build the graph."""
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        next_rng, draws = form.filled(params).draw(rng, size)
        shapes = [",".join(f"p{i}_{j}" for j in range(p.ndim)) for i, p in enumerate(params)]
        op = cls(
            inputs=[rng, size, *params],
            outputs=[next_rng, draws],
            extended_signature=f"[rng],[size],({'),('.join(shapes)})->[rng],(n)",
        )
        op.form, op.rv_op = form, partial(cls.rv_op, form=form)  # the latter when resized
        op._print_name = (form.label, f"\\operatorname{{{form.label}}}")
        return op(rng, size, *params)


class NormalVector(Continuous):
    """PyMC's side of a :class:`StructuredNormal`."""

    rv_type = NormalVectorRV
    rv_op = NormalVectorRV.rv_op

    @classmethod
    def dist(cls, normal: StructuredNormal, **kwargs):
        """Distribution outside a model."""
        form, params = normal.parted()
        return super().dist(params, form=form, **kwargs)

    @staticmethod
    def support_point(rv, rng, size, *params):
        """Mean."""
        return pt.full_like(rv, rv.owner.op.form.filled(params).mean)


@register_logprob(NormalVectorRV)
def normal_logprob(op, values, rng, size, *params, **kwargs):
    """Log density of one vector."""
    (value,) = values
    if value.ndim != 1:
        raise NotImplementedError(f"{op.form.label}'s logp takes one vector at a time")
    return op.form.filled(params).logp(value)


def product_of(left, right, solved: tuple, times) -> TensorVariable:
    """``l' S^-1 r`` with its gradient, from ``(a, b) = (S^-1 l, S^-1 r)`` and ``times``, products with S.

    As ``a' r + l' b - a' S b``, in which changes of a and b cancel: they are constants of the gradient.
    """
    a, b = map(disconnected_grad, solved)
    return (a * right).sum() + (left * b).sum() - (a * times(b)).sum()


def white(rng, size, *shapes) -> tuple[Variable, list[TensorVariable]]:
    """Next generator, and standard normal arrays of these shapes for each of `size` draws."""
    batch, found = () if rv_size_is_none(size) else tuple(size), []
    for shape in shapes:
        rng, z = pt.random.normal(size=(*batch, *shape), rng=rng, return_next_rng=True)
        found.append(z)
    return rng, found
