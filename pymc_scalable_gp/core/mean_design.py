"""Mean functions as a fixed part and one that is linear in free coefficients."""

from typing import NamedTuple

import pytensor.tensor as pt
from pymc.gp.mean import Add, Constant, Linear, Zero
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.mean import mean_vector
from pymc_scalable_gp.utils.graphs import depends_only_on


class MeanDesign(NamedTuple):
    """``mean(X) = fixed(X) + H(X) beta``: functions of X that are fixed, and what multiplies columns."""

    fixed: list
    columns: list  # functions X (n, d) -> (n, 1) or (n, d)
    beta: TensorVariable | None

    def fixed_values(self, X: TensorVariable) -> TensorVariable:
        """Fixed part (n,)."""
        return sum((mean_vector(f, X) for f in self.fixed), pt.zeros_like(X[:, 0]))

    def values(self, X: TensorVariable) -> list[TensorVariable]:
        """The columns H, in pieces."""
        return [column(X) for column in self.columns]


def mean_design(mean_func, d: int) -> MeanDesign:
    """Take a mean function of d inputs apart.

    Raises
    ------
    ValueError
        For a mean with free parameters that is not Constant, Linear, or a sum of such.
    """
    fixed, columns, beta = [], [], []
    for part in _parts(mean_func):
        X = pt.matrix("X", shape=(None, d))
        if isinstance(part, Zero):
            continue
        if depends_only_on([pt.as_tensor_variable(part(X))], [X]):
            fixed.append(part)
        elif isinstance(part, Constant):
            columns.append(_ones)
            beta.append(pt.atleast_1d(part.c))
        elif isinstance(part, Linear):
            columns += [_itself, _ones]
            slope = pt.as_tensor_variable(part.A)
            slope = slope[:, 0] if slope.ndim == 2 else slope * pt.ones(d)
            beta += [slope, pt.atleast_1d(pt.as_tensor_variable(part.b))]
        else:
            raise ValueError(
                f"the mean {type(part).__name__} has free parameters and is not linear in them, which "
                "statistics of rows cannot hold: take pm.gp.mean.Constant, Linear or a sum of these, fix "
                "its parameters, or give X and y instead of statistics"
            )
    joined = pt.concatenate([b.astype("float64") for b in beta]) if beta else None
    return MeanDesign(fixed, columns, joined)


def _ones(X):
    return pt.ones_like(X[:, :1])


def _itself(X):
    return X


def _parts(mean_func):
    if isinstance(mean_func, Add):
        return [*_parts(mean_func.m1), *_parts(mean_func.m2)]
    return [mean_func]
