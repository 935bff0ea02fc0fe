"""Any likelihood with the function integrated out, by Laplace's approximation."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import DisconnectedType, disconnected_grad
from pytensor.graph.replace import graph_replace
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data
from pymc_scalable_gp.core.likelihoods.base import Likelihood, TrainingRows
from pymc_scalable_gp.core.likelihoods.rowwise import RowDistribution
from pymc_scalable_gp.utils.graphs import parameters_of
from pymc_scalable_gp.utils.jitter import LOOSE_JITTER
from pymc_scalable_gp.utils.loops import repeat

LIMIT = 100  # steps of the search
ADJOINT_LIMIT = 50
TOLERANCE = 1e-8  # of a step, in units of each row's information
SHORTER = 0.5 ** np.arange(1, 12)  # shares of a step that is too long
# A step as short as this is taken whole, in units of each row's information: with neighbours C + diag(v) is
# approximated at each v anew, and the mode is not quite where the objective is highest.
SHORT = 1.0
ROUNDING = 1e-9  # of the objective
LOG_2PI = float(np.log(2.0 * np.pi))
_FAR = pt.constant(np.inf, dtype="float64")


class Mode(NamedTuple):
    """Mode of the function (n,), and the length of the last step there."""

    f: TensorVariable
    step: TensorVariable


class LaplaceGraph:
    """Graphs of the mode and of the density, in places for the targets and for the function.

    With pseudo-targets ``t = f + g / W`` of noise variance ``v = 1 / W``, a Newton step is the
    regression ``f+ = t - v S^-1 (t - mu)``, ``S = C + diag(v)``.
    """

    def __init__(self, rows: RowDistribution, inner: Likelihood):
        self.rows, self.mean = rows, inner.data.mean
        self.t, self.v = pt.vector("t", dtype="float64"), pt.vector("v", dtype="float64")
        self.normal_logp = inner.logp(self.t, self.v)
        self.normal_slope = pt.grad(self.normal_logp, self.t)

    def pseudo(self, f, y):
        """Targets (n,) and noise variances (n,) that stand for the likelihood near f."""
        _, g, W = self.rows.at(f, y)
        return f + g / W, 1.0 / W

    def solved(self, t, v):
        """``S^-1 (t - mu)`` (n,)."""
        return -graph_replace([self.normal_slope], {self.t: t, self.v: v}, strict=False)[0]

    def normal(self, t, v):
        """Log density of the pseudo-targets."""
        return graph_replace([self.normal_logp], {self.t: t, self.v: v}, strict=False)[0]

    def density(self, f, y):
        """``log N(t; mu, S) + sum_i [log p(y_i | f_i) - log N(t_i; f_i, v_i)]``."""
        logp, g, W = self.rows.at(f, y)
        own = -0.5 * (LOG_2PI - pt.log(W) + g**2 / W)
        return self.normal(f + g / W, 1.0 / W) + (logp - own).sum()

    def mode(self, y) -> Mode:
        """Newton's method from the mean, with shorter steps where the objective would fall."""
        f, a = pt.vector("f", dtype="float64"), pt.vector("a", dtype="float64")
        psi, step = pt.scalar("psi", dtype="float64"), pt.scalar("step", dtype="float64")
        _, g, W = self.rows.at(f, y)
        t, v = f + g / W, 1.0 / W
        solved = self.solved(t, v)
        towards, turn = t - v * solved - f, solved - a

        def objective(share):
            at = f + share * towards
            found = self.rows.logp_at(at, y).sum()
            found = found - 0.5 * ((a + share * turn) * (at - self.mean)).sum()
            return pt.switch(pt.isnan(found), -np.inf, found)

        whole = objective(1.0)
        length = pt.sqrt((W * towards**2).max())
        full = (whole >= psi - ROUNDING * pt.abs(psi)) | ((length < SHORT) & pt.isfinite(whole))
        tries = pt.stack([objective(share) for share in SHORTER])
        best = pt.argmax(tries)
        share = pt.switch(full, 1.0, pt.constant(SHORTER)[best])
        reached = pt.switch(full, whole, tries[best])
        last = pt.switch(full, length, pt.switch(pt.isnan(length), np.nan, 1.0 + length))
        after = [f + share * towards, a + share * turn, reached, last]
        done = ~(last > TOLERANCE)  # NaN too
        zero = pt.zeros_like(self.mean)
        start = [
            self.mean + zero, zero, self.rows.logp_at(self.mean, y).sum(), _FAR,
        ]  # fmt: skip
        found = repeat([f, a, psi, step], after, start, done, LIMIT)
        return Mode(found[0], found[3])

    def carried(self, f, y):
        """A scalar whose gradient is that of the density at the mode f, which moves with the parameters.

        With ``c`` the density's gradient in f and F the Newton step, ``w = c + (dF/df)' w`` and the
        gradient is ``d density / d theta + w' dF / d theta``. A derivative of ``b' S^-1 (t - mu)`` is half
        the difference of two densities', by polarisation.
        """
        point, w = f.copy(), pt.vector("w", dtype="float64")
        start = pt.grad(self.density(point, y), point)
        t, v = self.pseudo(f, y)
        a = self.solved(t, v)

        def moved(point, w):
            """``w' F`` at a point, for gradients alone."""
            t_, v_ = self.pseudo(point, y)
            q = w * v
            scale = pt.sqrt(((t - self.mean) ** 2).sum() / pt.maximum((q**2).sum(), 1e-300))
            q, scale = disconnected_grad(q * scale), disconnected_grad(scale)
            both = self.normal(t_ + q, v_) - self.normal(t_ - q, v_)
            return (w * t_).sum() - (w * disconnected_grad(a) * v_).sum() + 0.5 * both / scale

        back = pt.grad(moved(point, w), point, consider_constant=[w])
        after = start + back
        change = pt.sqrt(((after - w) ** 2).sum() / pt.maximum((after**2).sum(), 1e-300))
        last = pt.scalar("change", dtype="float64")
        (w_, _) = repeat(
            [w, last], [after, change], [start, _FAR], ~(change > TOLERANCE),
            ADJOINT_LIMIT,
        )  # fmt: skip
        return self.density(f, y) + moved(f, disconnected_grad(w_))


class LaplaceDensity(OpFromGraph):
    """Log density of targets, the mode, and the length of the last step, of (targets, parameters)."""

    def __init__(self, graph: LaplaceGraph, places):
        self.graph, self.places = graph, [graph.rows.y, *places]
        mode = graph.mode(graph.rows.y)
        found = mode.step <= TOLERANCE
        density = pt.switch(found, graph.density(mode.f, graph.rows.y), np.nan)
        f = pt.switch(found, mode.f, np.nan)
        super().__init__(self.places, [density, f, mode.step], inline=True)

    def _floats(self):
        return [place.type.dtype.startswith("float") for place in self.places]

    def pullback(self, inputs, outputs, cotangents):
        """By implicit differentiation of the mode: see :meth:`LaplaceGraph.carried`."""
        f = pt.vector("mode", dtype="float64")
        floats = [p for p, is_float in zip(self.places, self._floats(), strict=True) if is_float]
        carried = self.graph.carried(f, self.graph.rows.y)
        grads = pt.grad(carried, floats, disconnected_inputs="ignore")
        given = dict(zip([f, *self.places], [outputs[1], *inputs], strict=True))
        grads = iter(graph_replace(grads, given, strict=False))
        return [
            next(grads) * cotangents[0] if is_float else DisconnectedType()()
            for is_float in self._floats()
        ]

    def connection_pattern(self, node):
        """The density alone can be differentiated."""
        return [[is_float, False, False] for is_float in self._floats()]


@dataclass(frozen=True, eq=False)
class LaplaceRows(TrainingRows):
    r"""Any likelihood, by Laplace's approximation at the mode of f.

    ``log p(y) = log N(t; mu, C + W^-1) + sum_i [log p(y_i | f_i) - log N(t_i; f_i, 1 / W_i)]`` with
    pseudo-targets ``t = f + g / W``, slopes g and information W of the rows. The Gaussian likelihood
    `inner` evaluates the first term, with one noise variance per row; it is that of any method, and
    predictions follow from it with the pseudo-targets for its own.
    """

    rows: RowDistribution
    inner: Likelihood
    y: Data
    model: pm.Model

    sigma = None

    @property
    def path(self) -> str:
        """Laplace, and how the Gaussian part is evaluated."""
        return f"Laplace, {self.inner.path}"

    @property
    def X(self) -> Data:
        """Training inputs."""
        return self.inner.data.X

    @property
    def holds_residual(self) -> bool:
        """As of the Gaussian likelihood."""
        return self.inner.holds_residual

    @cached_property
    def _function_draw(self) -> TensorVariable:
        """The function at the training inputs, from the prior."""
        data = self.inner.data
        variance = LOOSE_JITTER * data.feature_map.kernel_diag(data.X.tensor)
        return self.inner.normal(variance).dist()

    @cached_property
    def _parameters(self) -> list:
        """Variables of the model, and shared data, that the density and draws depend on."""
        graph, draw = self._graph, self._function_draw.owner.inputs
        found = [graph.normal_logp, graph.normal_slope, graph.mean, *self.rows.graphs]
        return parameters_of([*found, *draw, self.rows.variable], self.model)

    @cached_property
    def _graph(self) -> LaplaceGraph:
        return LaplaceGraph(self.rows, self.inner)

    @cached_property
    def _density(self) -> LaplaceDensity:
        return LaplaceDensity(self._graph, self._parameters)

    @cached_property
    def pseudo(self) -> Likelihood:
        """The Gaussian likelihood of the pseudo-targets at the mode."""
        y = self.y.tensor
        _, f, _ = self._density(y, *self._parameters)
        t, v = self._graph.pseudo(f, y)
        data = replace(self.inner.data, y=Data(t, self.y.value, True), sigma=pt.sqrt(v))
        return replace(self.inner, data=data)

    def observe(self, name: str, **kwargs) -> TensorVariable:
        """The observed random variable, in the model of the context."""
        params = self._parameters

        def draw(*args):
            given = dict(zip(params, args[:-1], strict=True))
            drawn = graph_replace([self.rows.variable], {self.rows.f: self._function_draw})
            return graph_replace(drawn, given, strict=False)[0]

        def logp(value, *args):
            return self._density(value.astype("float64"), *args)[0]

        shapes = [",".join(f"p{i}_{j}" for j in range(p.ndim)) for i, p in enumerate(params)]
        return pm.CustomDist(
            name, *params, dist=draw, logp=logp, signature=f"({'),('.join(shapes)})->(n)",
            class_name=f"Integrated{self.rows.label.title().replace('_', '')}",
            observed=self.y.tensor.astype(self.rows.dtype), **kwargs,
        )  # fmt: skip

    def coefficients(self):
        """Given the pseudo-targets."""
        return self.pseudo.coefficients()

    def prediction_map(self):
        """Features of the Gaussian likelihood."""
        return self.inner.prediction_map()

    def prior_map(self):
        """Features of the Gaussian likelihood."""
        return self.inner.prior_map()

    def of_parts(self, parts, places):
        """As of the Gaussian likelihood."""
        return self.pseudo.of_parts(parts, places)

    def predictor(self, feature_map, mean_func, coef, noise, model):
        """Given the pseudo-targets."""
        return self.pseudo.predictor(feature_map, mean_func, coef, noise, model)

    def conditional(self, name, data, feature_map, mean_func, coef, variance, **kwargs):
        """Given the pseudo-targets."""
        return self.pseudo.conditional(name, data, feature_map, mean_func, coef, variance, **kwargs)

    @property
    def state(self):
        """As of the Gaussian likelihood."""
        return self.inner.state

    def figures(self, points, model=None):
        """As of the Gaussian likelihood."""
        return self.inner.figures(points, model)
