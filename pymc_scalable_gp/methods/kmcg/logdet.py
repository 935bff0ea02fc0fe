"""Log determinant of KMCG's exact covariance by fixed probes, and the error of that."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable
from scipy import linalg

from pymc_scalable_gp.core.data.inputs import Data
from pymc_scalable_gp.linops.base import LinearOperator
from pymc_scalable_gp.ops.lanczos import lanczos
from pymc_scalable_gp.ops.stochastic_logdet import stochastic_logdet
from pymc_scalable_gp.utils.checks import Refuse
from pymc_scalable_gp.utils.compiled import evaluate_at
from pymc_scalable_gp.utils.graphs import fixed_shared


@dataclass(frozen=True, eq=False)
class ProbedLogdet:
    """``log|K + c I|`` by P Lanczos steps from each of S random sign vectors, drawn with `seed`.

    The probes belong to the present number of rows: inputs that may be replaced by others are refused,
    when the density is evaluated, where their number differs.
    """

    operator: LinearOperator
    shift: TensorVariable  # c, the noise variance
    X: Data
    steps: int
    count: int
    seed: int

    @cached_property
    def probes(self) -> TensorVariable:
        """Signs (S, n)."""
        n = self.X.value.shape[0]
        drawn = np.random.default_rng(self.seed).integers(0, 2, (self.count, n), dtype=np.int8)
        signs = fixed_shared(2.0 * drawn - 1.0)
        if not self.X.mutable:
            return signs
        message = (
            f"the probes of the log determinant were drawn for {n} rows, and X has another number now: "
            "build the model again with the new rows, or, for predictions alone, give probes=0"
        )
        return Refuse(message)(signs, pt.eq(self.X.tensor.shape[0], n))

    def estimate(self) -> TensorVariable:
        """The estimate, differentiable."""
        return stochastic_logdet(self.operator, self.shift, self.probes, self.steps)

    def errors(self, points=(None,), model=None) -> np.ndarray:
        """Standard error of the estimate, and a bound on the quadrature's error: an array (points, 2).

        The standard error is from the spread over the probes (NaN for one probe). The quadrature is
        bracketed: Gauss nodes overestimate a logarithm, Gauss-Radau nodes with one at 0 underestimate it.
        Both are NaN where the kernel is not finite.
        """
        runs = [lanczos(self.operator, self.probes[s], self.steps)[1:] for s in range(self.count)]
        flat = [each for run in runs for each in run]
        with np.errstate(all="ignore"):  # a lengthscale of 0, for one
            found = evaluate_at([self.shift, *flat], points, model)
        return np.array([self._errors(*values) for values in found])

    def _errors(self, shift, *values) -> tuple[float, float]:
        """At one point."""
        if not all(np.isfinite(each).all() for each in (shift, *values)):
            return np.nan, np.nan
        n = self.X.value.shape[0]
        pairs = zip(values[::2], values[1::2], strict=True)
        found = n * np.array([_bracket(alpha, beta, float(shift)) for alpha, beta in pairs])
        sd = found[:, 1].std(ddof=1) if self.count > 1 else np.nan
        bias = np.maximum(found[:, 1] - found[:, 0], 0.0)  # negative by rounding alone
        return float(sd / np.sqrt(self.count)), float(bias.mean())


def _bracket(alpha, beta, shift) -> tuple[float, float]:
    """Lower (Gauss-Radau) and upper (Gauss) value of ``e_1' log(A + c I) e_1`` from P Lanczos steps."""
    ended = np.flatnonzero(beta == 0.0)
    steps = int(ended[0]) + 1 if len(ended) else len(alpha)
    upper = _rule(alpha[:steps], beta[: steps - 1], shift)
    if len(ended):  # the space is invariant: the rule is exact
        return upper, upper
    pivot = alpha[0]
    for a, b in zip(alpha[1:], beta[:-1], strict=True):
        if pivot <= 0.0:
            break
        pivot = a - b**2 / pivot
    if pivot <= 0.0:  # rounding: a node is at 0 already
        return upper, upper
    return _rule(np.append(alpha, beta[-1] ** 2 / pivot), beta, shift), upper


def _rule(alpha, beta, shift) -> float:
    """The quadrature whose nodes are the eigenvalues of a tridiagonal matrix."""
    nodes, vectors = linalg.eigh_tridiagonal(alpha, beta)
    return float(vectors[0] ** 2 @ np.log(np.maximum(nodes, 0.0) + shift))
