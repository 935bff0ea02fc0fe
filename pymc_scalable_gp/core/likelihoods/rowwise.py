"""Likelihoods of users: a distribution for each row, given the function there."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.graph.utils import MethodNotDefined
from pytensor.tensor.random.basic import StudentTRV
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.utils.compiled import (
    check_reached,
    compiled,
    model_inputs,
    point_values,
    present_shape,
    zero_outside,
)
from pymc_scalable_gp.utils.graphs import parameters_of, present_value, without_splits

# Rows with no more information say nothing.
LEAST = 1e-19


class RowDistribution:
    r"""Distribution of each target given the function at its row, and its derivatives there.

    `make` takes f (n,) and returns a PyMC distribution (n,), elementwise in f; its other parameters are of
    `model`, and `size` is the number of rows n, where it stays.

    ``slope = d log p / d f`` and ``information = -d^2 log p / d f^2`` come from PyTensor; of a Student
    t, which is not log-concave in its mean, the expected information ``(d mu / d f)^2 (nu + 1) /
    ((nu + 3) sigma^2)``, where f is in the mean alone.

    Raises TypeError if `make` returns no distribution with one entry per row, and ValueError if its log
    density is unknown or has no second derivative in f, or if `make` makes variables of the model.
    """

    def __init__(self, make: Callable, model, size: int | None = None):
        if not callable(make) or isinstance(make, type):
            raise TypeError(
                "likelihood= takes a function of f that returns a distribution, such as lambda f: "
                f"pm.Poisson.dist(mu=pm.math.exp(f)); got {getattr(make, '__name__', type(make).__name__)}"
            )
        self.make, self.model, self.size = make, model, size
        self.f, self.y = self.vector("f"), self.vector("y")
        before = set(model.named_vars)
        try:
            self.variable = make(self.f)
        except ValueError as error:
            raise ValueError(
                f"likelihood= fails for f of {size or 'n'} rows: {str(error).rstrip('.')}. What it has for "
                "each row (exposures, offsets) is an array, of pandas .to_numpy(), with one value for each "
                "row with a target"
            ) from error
        if made := sorted(set(model.named_vars) - before):
            raise ValueError(
                f"likelihood= makes {', '.join(made)}: write variables before the function, which is "
                "called again for predictions"
            )
        if not isinstance(self.variable, TensorVariable) or self.variable.owner is None:
            raise TypeError(
                "likelihood= must return a distribution, such as pm.Poisson.dist(...): got "
                f"{type(self.variable).__name__}"
            )
        if self.variable.ndim != 1:
            raise TypeError(
                "likelihood= must return one distribution per row, of shape (n,): this one has "
                f"{self.variable.ndim} dimensions"
            )
        self.dtype = self.variable.dtype
        try:
            self.logp = self._derived(pm.logp)
        except (NotImplementedError, RuntimeError) as error:
            raise ValueError(
                f"likelihood= returned {self.label}, whose log density PyMC does not know"
            ) from error
        self.slope = self._change(self.logp)
        self.slope, self.information = without_splits([self.slope, self._information()])

    def vector(self, name: str) -> TensorVariable:
        """A place for a value of each row."""
        return pt.vector(name, dtype="float64", shape=(self.size,))

    @property
    def graphs(self) -> list[TensorVariable]:
        """Log density, slope and information, of `f` and `y`."""
        return [self.logp, self.slope, self.information]

    @property
    def label(self) -> str:
        """Name of the distribution."""
        op = self.variable.owner.op
        return str(getattr(op, "name", None) or type(op).__name__).removesuffix("RV")

    @property
    def is_discrete(self) -> bool:
        """Whether targets are counts or classes."""
        return np.dtype(self.dtype).kind in "iub"

    def at(self, f, y) -> list[TensorVariable]:
        """Log density (n,), slope and information at values of the function and targets."""
        return graph_replace(self.graphs, {self.f: f, self.y: y}, strict=False)

    def logp_of(self, functions, y) -> TensorVariable:
        """Log densities (s, n) at several functions (s, n)."""
        return vectorize_graph(graph_replace([self.logp], {self.y: y})[0], {self.f: functions})

    def cdf_of(self, functions, y) -> TensorVariable | None:
        """Probabilities (s, n) of the targets and less; None where PyMC does not know them."""
        try:
            found = pt.exp(self._derived(pm.logcdf))
        except (NotImplementedError, TypeError):
            return None
        return vectorize_graph(graph_replace([found], {self.y: y})[0], {self.f: functions})

    @property
    def dependencies(self) -> list[TensorVariable]:
        """Variables of the model, data and constants that the distribution's parameters depend on.

        Not what is behind a scalar of the model, which has no values of rows.
        """
        named, random = self.model.named_vars.values(), self.model.basic_RVs
        ends = [v for v in named if v in random or not getattr(v, "ndim", 1)]
        return [
            v
            for v in ancestors([self.variable], blockers=ends)
            if (v in random or v.owner is None) and isinstance(v, TensorVariable)
        ]

    def check_without_rows(self, n: int) -> None:
        """Raise ValueError where parameters have one value for each of the n training rows."""
        for v in self.dependencies:
            value = present_value(v)
            shape = present_shape(v) if value is None else np.shape(value)
            if v is not self.f and n > 1 and n in shape:
                raise ValueError(
                    f"likelihood= has {v.name or 'an array'} with a value for each of the {n} training "
                    "rows: for new observations give predictions likelihood=, a function of f with the "
                    "values of the new rows"
                )

    def check(self, y: np.ndarray, mean: TensorVariable, model) -> None:
        """Check targets (n,), and the likelihood at the prior's mean in the model's initial point.

        Raises TypeError for a distribution that mixes rows, and ValueError for targets outside its
        support, or derivatives that are not finite.
        """
        if self.is_discrete and np.any(y != np.round(y)):
            row = int(np.flatnonzero(y != np.round(y))[0])
            raise ValueError(
                f"y[{row}] = {y[row]:.6g}, but {self.label} takes whole numbers: give counts or classes"
            )
        outputs = [mean * pt.ones_like(self.y), *self.graphs]
        inputs = model_inputs(outputs, model)
        check_reached(outputs, inputs)
        values = point_values(inputs, None, model, fill=True)
        middle, *_ = compiled([self.y, *inputs], outputs[:1])(y, *values)
        function = compiled([self.f, self.y, *inputs], self.graphs)
        with np.errstate(all="ignore"):
            logp, slope, information = function(middle, y, *values)
            half = np.random.default_rng(0).permutation(len(y)) % 2 == 1
            moved = [
                function(np.where(rows, middle + 0.1, middle), y, *values)[0] for rows in (half, ~half)
            ]
        others = np.where(half, moved[1], moved[0])
        if np.shape(logp) != y.shape or not np.array_equal(others, logp, equal_nan=True):
            raise TypeError(
                f"likelihood= returned {self.label}, where a row's density depends on f at other rows: it "
                "must be elementwise in f"
            )
        bad = np.flatnonzero(~np.isfinite(logp))
        if bad.size:
            raise ValueError(
                f"y[{bad[0]}] = {y[bad[0]]:.6g} has no density under {self.label} at the model's initial "
                f"point ({bad.size} such rows): is it in the support, are parameters valid?"
            )
        if (bad := np.flatnonzero(~np.isfinite(slope + information))).size:
            raise ValueError(
                f"the derivatives of {self.label}'s log density in f are not finite at the model's initial "
                f"point, for y[{bad[0]}] = {y[bad[0]]:.6g} ({bad.size} such rows): give initval= to "
                "the priors, scale y, or drop rows that say nothing of f (an exposure of 0); a truncated "
                "normal needs both bounds, of which one may be far off; counts truncated above take no "
                "lower=0"
            )
        if not (information > LEAST).any():
            raise ValueError(
                f"{self.label}'s log density has no negative second derivative in f, which Laplace's "
                "approximation needs: use a Latent class with this likelihood"
            )

    def _derived(self, derive: Callable) -> TensorVariable:
        """``pm.logp`` or ``pm.logcdf`` of the targets.

        With places for the model's variables meanwhile: PyMC copies a graph that it derives from, and
        copies of random variables are others.
        """
        known = [v for v in parameters_of([self.variable], self.model) if v is not self.f]
        places = [v.type() for v in known]
        variable = graph_replace([self.variable], dict(zip(known, places, strict=True)))[0]
        found = derive(variable, self.y.astype(self.dtype), warn_rvs=False).astype("float64")
        back = dict(zip(places, known, strict=True))
        return graph_replace([zero_outside(found)], back, strict=False)[0]

    def _information(self):
        try:
            found = self._expected()
            return -self._change(self.slope) if found is None else found
        except (NotImplementedError, MethodNotDefined, NullTypeGradError) as error:
            raise ValueError(
                f"likelihood= returned {self.label}, whose log density has no second derivative in f"
            ) from error

    def _expected(self) -> TensorVariable | None:
        """Expected information of a Student t that f moves, and does not scale."""
        node = self.variable.owner
        if not isinstance(node.op, StudentTRV):
            return None
        nu, mu, scale = node.op.dist_params(node)
        if self.f in ancestors([nu, scale]):
            return None
        return self._change(mu) ** 2 * (nu + 1.0) / ((nu + 3.0) * scale**2)

    def _change(self, values) -> TensorVariable:
        """Derivatives (n,) in f of values of the rows."""
        total = (values * pt.ones_like(self.f)).sum()
        return pt.grad(total, self.f, disconnected_inputs="ignore")
