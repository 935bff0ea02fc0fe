"""Any likelihood with the function integrated out, by Laplace's approximation."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import DisconnectedType, disconnected_grad
from pytensor.graph.replace import graph_replace
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data, held_value
from pymc_scalable_gp.core.likelihoods.base import Likelihood, MarginalData, Training
from pymc_scalable_gp.core.likelihoods.cavity import CavityPrecisions
from pymc_scalable_gp.core.likelihoods.laplace_error import LOG_2PI, log_ratios
from pymc_scalable_gp.core.likelihoods.new_rows import ObservationPredictor
from pymc_scalable_gp.core.likelihoods.rowwise import RowDistribution
from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal
from pymc_scalable_gp.ops._expanded import Expanded, jax_function
from pymc_scalable_gp.ops._jax import register_jax
from pymc_scalable_gp.ops.repeat import outside, repeat
from pymc_scalable_gp.utils.compiled import compiled, model_inputs, point_values
from pymc_scalable_gp.utils.graphs import data_shared, parameters_of
from pymc_scalable_gp.utils.jitter import LOOSE_JITTER

LIMIT = 100  # steps of the search
ADJOINT_LIMIT = 50
# What is left after the last step, in units of each row's information: the step times its ratio to the one
# before, of which Newton's next step is the square.
TOLERANCE = 1e-7
ADJOINT_TOLERANCE = 1e-8
TRIES = 12  # of a step: the whole, or the best of it and its halves
# A step as short as this is taken whole, in units of each row's information: with neighbours C + diag(v) is
# approximated at each v anew, and the mode is not quite where the objective is highest.
SHORT = 1.0
ROUNDING = 1e-9  # of the objective
SLOW = 0.3  # a step's ratio to the last, above which the search is accelerated
_FAR, _ALL = (pt.constant(each, dtype="float64") for each in (np.inf, 1.0))


def _acceleration(way, before, change, last, weight, near):
    """Whether steps shrink slowly, and the share of the last one that Anderson's acceleration takes back.

    Of depth one: with the ways ``r_k`` from points to where a step leads, ``x_{k+1} = F_k - c (F_k -
    F_{k-1})``, where c makes ``r_k - c (r_k - r_{k-1})`` shortest. Only `near` the end.
    """
    turn = way - before
    back = (weight * turn * way).sum() / pt.maximum((weight * turn**2).sum(), 1e-300)
    slow = (change > SLOW * last) & pt.isfinite(last) & near
    return slow, pt.switch(slow, back, 0.0)


def _remaining(change, last, slow):
    """What is left after a step, as the next is to this one about as this one to the last."""
    ratio = pt.switch(pt.isinf(last) | slow, 1.0, pt.minimum(change / last, 1.0))
    return change * ratio


class LaplaceGraph:
    """Graphs of the mode and of the density, in places for the targets and for the function.

    With pseudo-targets ``t = f + g / W`` of noise variance ``v = 1 / W``, a Newton step is the
    regression ``f+ = t - v S^-1 (t - mu)``, ``S = C + diag(v)``.
    """

    def __init__(self, rows: RowDistribution, inner: Likelihood, start):
        self.rows, self.mean, self.start = rows, inner.data.mean, start
        self.t, self.v, self.q = rows.vector("t"), rows.vector("v"), rows.vector("q")
        normal = inner.normal(self.v).prepared()
        self.normal_logp = normal.logp(self.t)
        self.normal_slope = pt.grad(self.normal_logp, self.t)
        self.normal_product = normal.product(self.q, self.t - self.mean)

    def _given(self, graph, t, v, q=None):
        """A graph of the normal at other targets and variances, which shares all that neither changes."""
        given = {self.t: t, self.v: v} | ({} if q is None else {self.q: q})
        shared = {each: each for each in outside([graph], list(given))}
        return graph_replace([graph], given | shared, strict=False)[0]

    def pseudo(self, f, y):
        """Targets (n,) and noise variances (n,) that stand for the likelihood near f."""
        _, g, W = self.rows.at(f, y)
        return f + g / W, 1.0 / W

    def solved(self, t, v):
        """``S^-1 (t - mu)`` (n,)."""
        return -self._given(self.normal_slope, t, v)

    def normal(self, t, v):
        """Log density of the pseudo-targets."""
        return self._given(self.normal_logp, t, v)

    def density(self, f, y):
        """``log N(t; mu, S) + sum_i [log p(y_i | f_i) - log N(t_i; f_i, v_i)]``."""
        logp, g, W = self.rows.at(f, y)
        own = -0.5 * (LOG_2PI - pt.log(W) + g**2 / W)
        return self.normal(f + g / W, 1.0 / W) + (logp - own).sum()

    def mode(self, y) -> tuple[TensorVariable, TensorVariable]:
        """Mode of the function (n,), and what is left of the way there: NaN or large where none was found.

        By Newton's method from `start`, or the mean where that is better or nothing else is known, with
        shorter steps where the objective would fall, and acceleration where steps shrink slowly.
        """
        names = ("f", "slope", "information", "a", "goal", "way", "from")
        places = [self.rows.vector(name) for name in names]
        places += [pt.scalar(name, dtype="float64") for name in ("psi", "step", "left")]
        f, g, W, a, goal, way, solved_before, psi, step, _ = places
        t, v = f + g / W, 1.0 / W
        solved = self.solved(t, v)
        newton = t - v * solved
        towards = newton - f
        length = pt.sqrt((W * towards**2).max())
        slow, share_back = _acceleration(towards, way, length, step, W, length < SHORT)
        steps = towards, solved - a
        back = share_back * (newton - goal), share_back * (solved - solved_before)
        reached, full, *moved = self._tried((f, a), steps, back, psi, length < SHORT, y)
        last, slow = pt.switch(full, length, 1.0 + length), slow & full
        psi_after = pt.switch(slow, -np.inf, reached)
        after = [*moved, newton, towards, solved, psi_after, last, _remaining(last, step, slow)]
        floor, *at_mean = self.rows.at(self.mean, y)
        floor, none = floor.sum(), pt.zeros_like(self.mean)
        start = [self.mean, *at_mean, *[none] * 4, floor, _FAR, _FAR]
        if self.start is not None:
            known = pt.isfinite(self.start).all()
            lost = pt.isinf(step) & pt.isinf(psi) & (reached < floor)
            after = [pt.switch(lost, old, new) for old, new in zip(start, after, strict=True)]
            start[0] = pt.switch(known, self.start, self.mean)
            start[1:3] = self.rows.at(start[0], y)[1:]
            start[7] = pt.switch(known, -np.inf, floor)  # whatever the first step leads to
        done = ~(after[-1] > TOLERANCE)  # NaN too
        found = repeat(places, after, start, done, LIMIT)
        return found[0], found[-1]

    def _tried(self, point, steps, back, psi, near, y):
        """The objective after a step, whether all of it was taken, and f, slope, information and a there.

        All of it, accelerated, if it is short or the objective does not fall; else the best of its halves.
        Where slopes are not finite, the objective counts as -inf.
        """
        places = [pt.scalar(name, dtype="float64") for name in ("share", "best")]
        places += [self.rows.vector(name) for name in ("f", "slope", "information", "a")]
        share, best, *held = places
        whole = pt.eq(share, 1.0)
        f, a = (
            x + share * step - pt.switch(whole, off, 0.0)
            for x, step, off in zip(point, steps, back, strict=True)
        )
        logp, g, W = self.rows.at(f, y)
        value = logp.sum() - 0.5 * (a * (f - self.mean)).sum()
        value = pt.switch(pt.isfinite(value + g.sum() + W.sum()), value, -np.inf)
        done = whole & ((near & pt.isfinite(value)) | (value >= psi - ROUNDING * pt.abs(psi)))
        taken = whole | (value > best)
        after = [pt.switch(done, share, 0.5 * share), pt.switch(taken, value, best)]
        after += [pt.switch(taken, new, old) for new, old in zip((f, g, W, a), held, strict=True)]
        none = pt.zeros_like(point[0])
        share, best, *held = repeat(places, after, [_ALL, -_FAR, *[none] * 4], done, TRIES)
        return best, pt.eq(share, 1.0), *held

    def carried(self, f, y):
        """A scalar whose gradient is that of the density at the mode f, which moves with the parameters.

        With ``c`` the density's gradient in f and F the Newton step, ``w = c + (dF/df)' w`` and the
        gradient is ``d density / d theta + w' dF / d theta``.
        """
        point, w = f.copy(), self.rows.vector("w")
        start = pt.grad(self.density(point, y), point)
        t, v = self.pseudo(f, y)
        a = self.solved(t, v)

        def moved(point, w):
            """``w' F`` at a point, for gradients alone."""
            t_, v_ = self.pseudo(point, y)
            q = w * v
            scale = pt.sqrt(((t - self.mean) ** 2).sum() / pt.maximum((q**2).sum(), 1e-300))
            q, scale = disconnected_grad(q * scale), disconnected_grad(scale)
            product = self._given(self.normal_product, t_, v_, q)
            return (w * t_).sum() - (w * disconnected_grad(a) * v_).sum() - product / scale

        back = pt.grad(moved(point, w), point, consider_constant=[w])
        new = start + back
        places = [w, self.rows.vector("before"), self.rows.vector("way")]
        places += [pt.scalar(name, dtype="float64") for name in ("change", "left")]
        _, before, way, last, _ = places
        size = pt.maximum((new**2).sum(), 1e-300)
        change = pt.sqrt(((new - w) ** 2).sum() / size)
        slow, share_back = _acceleration(new - w, way, change, last, 1.0, np.array(True))
        step = new - share_back * (new - before)
        after = [step, new, new - w, change, _remaining(change, last, slow)]
        none = pt.zeros_like(start)
        w_, *_ = repeat(
            places, after, [start, none, none, _FAR, _FAR], ~(after[-1] > ADJOINT_TOLERANCE),
            ADJOINT_LIMIT,
        )  # fmt: skip
        return self.density(f, y) + moved(f, disconnected_grad(w_))


class LaplaceDensity(Expanded):
    """Log density of targets, the mode, and what is left to it, of (targets, parameters)."""

    differentiable_outputs = (0,)

    def __init__(self, graph: LaplaceGraph, parameters):
        self.graph, self.known = graph, [graph.rows.y, *parameters]
        f, left = graph.mode(graph.rows.y)
        found = left <= TOLERANCE
        density = pt.switch(found, graph.density(f, graph.rows.y), np.nan)
        f = pt.specify_shape(pt.switch(found, f, np.nan), (graph.rows.size,))
        super().__init__(self.known, [density, f, left])

    def _floats(self):
        return [place.type.dtype.startswith("float") for place in self.places]

    @cached_property
    def _gradient(self):
        return LaplaceGradient(self.graph, self.known, self._floats())

    def pullback(self, inputs, outputs, cotangents):
        """See `LaplaceGradient`, one Op also where a gradient is taken parameter by parameter."""
        grads = iter(self._gradient(outputs[1], *inputs, return_list=True))
        return [
            next(grads) * cotangents[0] if is_float else DisconnectedType()()
            for is_float in self._floats()
        ]

    def connection_pattern(self, node):
        """The density alone can be differentiated."""
        return [[is_float, False, False] for is_float in self._floats()]


class LaplaceGradient(Expanded):
    """Gradient of the density, of (mode, targets, parameters), in those that are floats.

    By implicit differentiation of the mode: see :meth:`LaplaceGraph.carried`.
    """

    def __init__(self, graph: LaplaceGraph, known, floats):
        f = graph.rows.vector("mode")
        wanted = [place for place, is_float in zip(known, floats, strict=True) if is_float]
        grads = pt.grad(graph.carried(f, graph.rows.y), wanted, disconnected_inputs="ignore")
        super().__init__([f, *known], grads)

    def connection_pattern(self, node):
        """It has no derivatives."""
        return [[False] * len(self.outputs) for _ in node.inputs]


@register_jax(LaplaceGradient, differentiable=False)
@register_jax(LaplaceDensity)
def jax_laplace(op):
    """The graph itself."""
    found = jax_function(op.places, op.outputs)
    return lambda *inputs: tuple(found(*inputs))


@dataclass(frozen=True, eq=False)
class LaplaceRows(Training):
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
    start: SharedVariable | None = None  # where the search of the mode begins, unless NaN

    sigma = None
    any_likelihood = True

    @classmethod
    def of(cls, rows, inner, y, model) -> "LaplaceRows":
        """With a place for where the search begins, unless ``pm.set_data`` may change the rows."""
        fixed = not (inner.data.X.mutable or y.mutable)
        start = data_shared(np.full(len(y.value), np.nan)) if fixed else None
        return cls(rows, inner, y, model, start)

    def begin(self, point=None) -> None:
        """Let searches begin at the mode at a point of the model; the initial values for what it lacks."""
        if self.start is not None:
            self.start.set_value(np.full(len(self.y.value), np.nan))
            _, f, _ = self._density(self.y.tensor, *self._parameters)
            inputs = model_inputs([f], self.model)
            values = point_values(inputs, point, self.model, fill=True, whole=False)
            self.start.set_value(compiled(inputs, [f])(*values)[0])

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
    def predictive(self) -> Likelihood:
        """The Gaussian likelihood of the pseudo-targets at the mode."""
        t, v = self.pseudo_targets
        data = replace(self.inner.data, y=Data(t, self.y.value, True), sigma=pt.sqrt(v))
        return replace(self.inner, data=data)

    def observe(self, name: str, **kwargs) -> TensorVariable:
        """The observed random variable, in the model of the context."""
        params = self._parameters

        def draw(*args):
            given = dict(zip(params, args[:-1], strict=True))
            f = pt.specify_shape(self._function_draw, (self.rows.size,))
            drawn = graph_replace([self.rows.variable], {self.rows.f: f})
            return graph_replace(drawn, given, strict=False)[0]

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

    def log_ratios(self) -> TensorVariable | None:
        """Log weights of functions drawn at the mode; None where the likelihood goes by products."""
        try:
            return log_ratios(self)
        except NotImplementedError:
            return None

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
