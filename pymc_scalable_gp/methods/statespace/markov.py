"""Kernels of one input as sums of Markov processes times known functions of the input."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.cov import Add, BaseCovariance, Constant, Covariance, Exponentiated, Periodic, Prod, ScaledCov
from pytensor.graph.basic import Constant as ConstantTensor
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.cov.fourier import ROUNDING, fourier_coefficients, waves
from pymc_scalable_gp.cov.queries import leaves, used_columns, warn_unused_columns
from pymc_scalable_gp.ops._markov_steps import STATIC
from pymc_scalable_gp.utils.graphs import as_scalar
from pymc_scalable_gp.utils.internals import parts_of

# Share of its variance that a Periodic kernel's Fourier series may leave out.
TAIL = 1e-12
HIGHEST_POWER = 4
TYPICAL = 8  # harmonics that matter, of a Periodic kernel whose lengthscale is not known yet


class Inputs(NamedTuple):
    """The input (n,) as it is, and less a value near to it, for what depends on differences alone."""

    x: TensorVariable
    t: TensorVariable


@dataclass(frozen=True, eq=False)
class Term:
    """A product of Markov processes times features (n, k) of the inputs, of independent variances (k,)."""

    orders: tuple[int, ...]
    rates: tuple[TensorVariable, ...]
    variances: TensorVariable
    features: Callable[[Inputs], TensorVariable]
    size: int

    def times(self, other: "Term") -> "Term":
        """Term of the product of two kernels."""
        moving = [
            (order, rate)
            for term in (self, other)
            for order, rate in zip(term.orders, term.rates, strict=True)
            if order != STATIC
        ] or [(STATIC, pt.constant(0.0))]
        orders, rates = zip(*moving, strict=True)

        def features(inputs):
            left, right = self.features(inputs), other.features(inputs)
            pairs = left[:, :, None] * right[:, None, :]
            return pairs.reshape((pairs.shape[0], self.size * other.size))

        variances = pt.outer(self.variances, other.variances).ravel()
        return Term(orders, rates, variances, features, self.size * other.size)


class MarkovKind(NamedTuple):
    """Structure of a process, as `markov_logp` takes it: orders of factors, and counts by group."""

    orders: tuple[int, ...]
    counts: tuple[int, ...]
    sizes: tuple[int, ...]


class MarkovForm(NamedTuple):
    """A kernel: structure, rates (f,), variances (k,), features (n, k) of the inputs, and their owners."""

    kind: MarkovKind
    rates: TensorVariable
    variances: TensorVariable
    features: Callable[[Inputs], TensorVariable]
    owners: np.ndarray  # (k,) places of the summands, parts of a sum of GPs, that features belong to


def markov_form(summands: Sequence[BaseCovariance], harmonics: int) -> MarkovForm:
    """Form of a sum, whose terms of the same process share a group; ValueError for kernels without one."""
    found: dict[tuple, list[tuple[int, Term]]] = {}
    for place, cov_func in enumerate(summands):
        for term in _terms(cov_func, harmonics):
            own = () if term.orders == (STATIC,) else tuple(map(id, term.rates))
            found.setdefault((term.orders, own), []).append((place, term))
    owned = [each for group in found.values() for each in group]
    groups = [[term for _, term in group] for group in found.values()]
    first = [group[0] for group in groups]
    kind = MarkovKind(
        tuple(order for term in first for order in term.orders),
        tuple(len(term.orders) for term in first),
        tuple(sum(term.size for term in group) for group in groups),
    )
    ordered = [term for _, term in owned]

    def features(inputs):
        return pt.concatenate([term.features(inputs) for term in ordered], axis=1)

    rates = pt.stack([rate for term in first for rate in term.rates])
    variances = pt.concatenate([term.variances for term in ordered])
    owners = np.repeat([place for place, _ in owned], [term.size for term in ordered])
    return MarkovForm(kind, rates, variances, features, owners)


def column_of(cov_func, d: int) -> int:
    """The column of X (n, d) that a kernel looks at; ValueError if there are several."""
    columns = used_columns(cov_func, d)
    if len(columns) > 1:
        raise ValueError(
            f"the state-space form is for one input, but the kernel looks at columns {columns.tolist()} of "
            "X: give its kernels active_dims=[...] of one column, or take sgp.VecchiaMarginal"
        )
    warn_unused_columns(cov_func, d)
    return int(columns[0])


def _number(value) -> TensorVariable:
    """A scalar of float64."""
    return as_scalar(value).astype("float64")


def _ones(inputs: Inputs) -> TensorVariable:
    return pt.ones((inputs.t.shape[0], 1))


def _process(order, factor):
    """Table entry of a Matern kernel whose rate is `factor` over its lengthscale."""

    def terms(cov, harmonics):
        rate = factor / pt.abs(_number(cov.ls))  # distances are squared in the kernel
        return [Term((order,), (rate,), pt.ones(1), _ones, 1)]

    return terms


def _static(variances, features, size) -> Term:
    return Term((STATIC,), (pt.constant(0.0),), variances, features, size)


def _cosine(cov, harmonics):
    def features(inputs):
        return pt.concatenate(waves(2.0 * np.pi * inputs.t / _number(cov.ls), 1), axis=1)

    return [_static(pt.ones(2), features, 2)]


def all_coefficients(ls: TensorVariable, harmonics: int) -> TensorVariable:
    """Coefficients (harmonics + 1,) of a Periodic kernel's series; NaN where they leave out over 1e-12."""
    q = fourier_coefficients(ls, harmonics)
    rounding = 4.0 * ROUNDING * (harmonics + 8)  # of so many terms
    return pt.switch(1.0 - q.sum() < TAIL + rounding, q, np.nan)


def _periodic(cov, harmonics):
    """A constant, and a cosine and a sine of each harmonic."""
    q = all_coefficients(_number(cov.ls), harmonics)

    def features(inputs):
        angle = 2.0 * np.pi * inputs.t / _number(cov.period)
        return pt.concatenate([_ones(inputs), *waves(angle, harmonics)], axis=1)

    return [_static(pt.concatenate([q, q[1:]]), features, 2 * harmonics + 1)]


def _constant(cov, harmonics):
    value = cov.c if isinstance(cov, Constant) else cov
    return [_static(_number(value)[None], _ones, 1)]


def _linear(cov, harmonics):
    def features(inputs):
        return (inputs.x - _number(cov.c))[:, None]

    return [_static(pt.ones(1), features, 1)]


def _scaled(cov, harmonics):
    def scaled(term):
        def features(inputs):
            scale = cov.scaling_func(inputs.x[:, None], cov.args)
            return term.features(inputs) * pt.as_tensor_variable(scale).reshape((-1, 1))

        return Term(term.orders, term.rates, term.variances, features, term.size)

    return [scaled(term) for term in _terms(cov.cov_func, harmonics)]


def _product(cov, harmonics):
    found = [_terms(part, harmonics) for part in parts_of(cov)]
    return reduce(lambda left, right: [a.times(b) for a in left for b in right], found)


def _power(cov, harmonics):
    power = cov.power.data if isinstance(cov.power, ConstantTensor) else None
    if power is None or power != round(float(power)) or not 1 <= power <= HIGHEST_POWER:
        raise ValueError(
            f"the state-space form knows powers 1 to {HIGHEST_POWER} of kernels, got {power}: write the "
            "product out, or take sgp.VecchiaMarginal"
        )
    terms = _terms(cov.kernel, harmonics)
    return reduce(lambda left, right: [a.times(b) for a in left for b in right], [terms] * int(power))


MARKOV = {
    pm.gp.cov.Matern12: _process(0, 1.0),
    pm.gp.cov.Exponential: _process(0, 0.5),
    pm.gp.cov.Matern32: _process(1, np.sqrt(3.0)),
    pm.gp.cov.Matern52: _process(2, np.sqrt(5.0)),
    pm.gp.cov.Cosine: _cosine,
    Periodic: _periodic,
    Constant: _constant,
    pm.gp.cov.Linear: _linear,
    ScaledCov: _scaled,
    Add: lambda cov, harmonics: [term for part in parts_of(cov) for term in _terms(part, harmonics)],
    Prod: _product,
    Exponentiated: _power,
}


def _terms(cov, harmonics) -> list[Term]:
    if not isinstance(cov, BaseCovariance):
        return _constant(cov, harmonics)
    if type(cov) not in MARKOV:
        raise ValueError(
            f"{type(cov).__name__} is not Markov, so that it has no state-space form: the nearest "
            "kernel that is Markov is Matern52 (Periodic for what repeats itself, Matern52 times Cosine "
            "or Periodic for what does so for a while); any kernel goes with sgp.VecchiaMarginal and "
            "sgp.ExactMarginal"
        )
    if isinstance(cov, Covariance) and not isinstance(cov, Add | Prod) and len(cov.active_dims) > 1:
        raise ValueError(
            f"the state-space form is for one input, but {type(cov).__name__} has "
            f"{len(cov.active_dims)} columns: give active_dims=[...] of one column"
        )
    return MARKOV[type(cov)](cov, harmonics)


def count_states(cov_func, harmonics: int = TYPICAL) -> int | None:
    """Number of states of a kernel in Markov form; None where it has no such form."""
    try:
        terms = _terms(cov_func, harmonics)
    except ValueError:
        return None
    return sum(term.size * int(np.prod([max(p, 0) + 1 for p in term.orders])) for term in terms)


def uses_harmonics(cov_func) -> bool:
    """Whether a kernel has a Periodic part."""
    return any(
        uses_harmonics(leaf.cov_func) if isinstance(leaf, ScaledCov) else isinstance(leaf, Periodic)
        for leaf in leaves(cov_func)
    )
