"""Any likelihood with the function integrated out, by Laplace's approximation."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import graph_replace
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data, held_value
from pymc_scalable_gp.core.likelihoods.base import Likelihood, MarginalData, Training
from pymc_scalable_gp.core.likelihoods.cavity import CavityPrecisions
from pymc_scalable_gp.core.likelihoods.laplace_error import log_ratios
from pymc_scalable_gp.core.likelihoods.laplace_mean import AroundMean, around_mean
from pymc_scalable_gp.core.likelihoods.laplace_mode import LaplaceDensity, LaplaceGraph
from pymc_scalable_gp.core.likelihoods.new_rows import ObservationPredictor
from pymc_scalable_gp.core.likelihoods.rowwise import RowDistribution
from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal
from pymc_scalable_gp.utils.checks import Refuse
from pymc_scalable_gp.utils.compiled import compiled, model_inputs, point_values
from pymc_scalable_gp.utils.graphs import data_shared, parameters_of
from pymc_scalable_gp.utils.jitter import LOOSE_JITTER
from pymc_scalable_gp.utils.warn import warn


@dataclass(frozen=True, eq=False)
class LaplaceRows(Training):
    r"""Any likelihood, by Laplace's approximation at the mode of f.

    ``log p(y) = log N(t; mu, C + W^-1) + sum_i [log p(y_i | f_i) - log N(t_i; f_i, 1 / W_i)]`` with
    pseudo-targets ``t = f + g / W``, slopes g and information W of the rows. The Gaussian likelihood
    `inner` evaluates the first term, with one noise variance per row; it is that of any method, and
    predictions follow from it with pseudo-targets for its own: see :func:`around_mean`.
    """

    rows: RowDistribution
    inner: Likelihood
    y: Data
    model: pm.Model
    start: SharedVariable | None = None  # where the search of the mode begins, unless NaN

    sigma = None
    any_likelihood = True

    @classmethod
    def of(cls, rows, inner, y, model) -> "LaplaceRows":
        """With a place for where the search begins, unless ``pm.set_data`` may change the rows."""
        fixed = not (inner.data.X.mutable or y.mutable)
        if y.mutable and rows.is_discrete:  # a cast would round what replaces them
            words = f"y was replaced by values that are no whole numbers, or NaN: {rows.label} takes counts"
            whole = pt.eq(y.tensor, pt.round(y.tensor)).all()
            y = replace(y, tensor=Refuse(f"{words} or classes")(y.tensor, whole))
        start = data_shared(np.full(len(y.value), np.nan)) if fixed else None
        return cls(rows, inner, y, model, start)

    def begin(self, point=None) -> None:
        """Let searches begin at the mode at a point of the model; the initial values for what it lacks."""
        if self.start is not None:
            self.start.set_value(np.full(len(self.y.value), np.nan))
            _, f, _ = self._density(self.y.tensor, *self._parameters)
            inputs = model_inputs([f], self.model)
            values = point_values(inputs, point, self.model, fill=True, whole=False)
            (found,) = compiled(inputs, [f])(*values)
            if not np.isfinite(found).all():
                warn(
                    "No mode of the function is found at the initial point, or that which the GP was built "
                    "at: the log density is NaN there. Give initval= to the priors; with neighbors and few "
                    "inducing points, n_inducing=50 or more"
                )
            self.start.set_value(found)

    @property
    def path(self) -> str:
        """Laplace, and how the Gaussian part is evaluated."""
        return f"Laplace, {self.inner.path}"

    @property
    def X(self) -> Data:
        """Training inputs."""
        return self.inner.data.X

    @property
    def prior_function(self) -> StructuredNormal:
        """The function at the training inputs, before any target."""
        data = self.inner.data
        variance = LOOSE_JITTER * data.feature_map.kernel_diag(data.X.tensor)
        return self.inner.normal(variance)

    @cached_property
    def _function_draw(self) -> TensorVariable:
        return self.prior_function.dist()

    @cached_property
    def _parameters(self) -> list:
        """Variables of the model, and shared data, that the density and draws depend on."""
        graph, draw = self._graph, self._function_draw.owner.inputs
        found = [graph.normal_logp, graph.normal_slope, graph.mean, *self.rows.graphs]
        found += [] if self.start is None else [self.start]
        return parameters_of([*found, *draw, self.rows.variable], self.model)

    @cached_property
    def _graph(self) -> LaplaceGraph:
        return LaplaceGraph(self.rows, self.inner, self.start)

    @cached_property
    def _density(self) -> LaplaceDensity:
        return LaplaceDensity(self._graph, self._parameters)

    @cached_property
    def _found(self) -> list[TensorVariable]:
        """Density, mode, and what is left of the way to it."""
        return self._density(self.y.tensor, *self._parameters)

    @property
    def mode(self) -> TensorVariable:
        """Mode of the function (n,); NaN where none was found."""
        return self._found[1]

    @property
    def pseudo_targets(self) -> tuple[TensorVariable, TensorVariable]:
        """Targets (n,) and noise variances (n,) that stand for the likelihood at the mode."""
        return self._graph.pseudo(self.mode, self.y.tensor)

    @cached_property
    def at_mode(self) -> Likelihood:
        """The Gaussian likelihood of the pseudo-targets at the mode."""
        return self._of_targets(*self.pseudo_targets)

    @cached_property
    def predictive(self) -> Likelihood:
        """That of pseudo-targets which lead to the function's corrected mean."""
        t, v, _ = self.around_mean
        return self._of_targets(t, v)

    @cached_property
    def around_mean(self) -> AroundMean:
        """A normal near the function's posterior."""
        return around_mean(self)

    def _of_targets(self, t, v) -> Likelihood:
        data = replace(self.inner.data, y=Data(t, self.y.value, True), sigma=pt.sqrt(v))
        return replace(self.inner, data=data)

    def observe(self, name: str, **kwargs) -> TensorVariable:
        """The observed random variable, in the model of the context."""
        params = self._parameters

        def draw(*args):
            given = dict(zip(params, args[:-1], strict=True))
            (f,) = graph_replace([self._function_draw], given, strict=False)
            given |= {self.rows.f: pt.specify_shape(f, (self.rows.size,))}
            # At once: a graph that was replaced in has copies of some random variables.
            return graph_replace([self.rows.variable], given, strict=False)[0]

        def logp(value, *args):
            return self._density(value.astype("float64"), *args)[0]

        shapes = [",".join(f"p{i}_{j}" for j in range(p.ndim)) for i, p in enumerate(params)]
        return pm.CustomDist(
            name, *params, dist=draw, logp=logp, signature=f"({'),('.join(shapes)})->(n)",
            class_name=f"Integrated{self.rows.label.title().replace('_', '')}",
            observed=self.y.tensor.astype(self.rows.dtype), **kwargs,
        )  # fmt: skip

    @property
    def gaussian(self) -> Likelihood:
        return self.inner

    def around(self, gaussian: Likelihood) -> "LaplaceRows":
        return replace(self, inner=gaussian)

    def logp(self) -> TensorVariable:
        """Log density of the targets."""
        return self._found[0]

    def log_ratios(self) -> TensorVariable:
        """Log weights of functions near the posterior."""
        return log_ratios(self)

    @property
    def data(self) -> MarginalData:
        """Features, inputs and targets; sigma is without meaning."""
        return replace(self.inner.data, y=self.y)

    def precisions(self, model) -> CavityPrecisions:
        """Precision of the pseudo-targets, and the rows' own densities, at the model's variables."""
        return CavityPrecisions(self, model)

    def observing(self, predictor, likelihood, model):
        """Predictor of new observations, by quadrature over the function and by draws."""
        rows = RowDistribution(likelihood or self.rows.make, model)
        if likelihood is None:
            rows.check_without_rows(len(held_value(self.y, "y")))
        return ObservationPredictor(predictor, rows, model)
