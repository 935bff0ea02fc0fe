"""Laplace's approximation: the mode under any likelihood, the density there and its gradient, as Ops."""

from functools import cached_property

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_grad
from pytensor.graph.replace import graph_replace
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.missing import REPLACE_BOTH
from pymc_scalable_gp.core.likelihoods.base import Likelihood
from pymc_scalable_gp.core.likelihoods.rowwise import RowDistribution
from pymc_scalable_gp.ops._expanded import Expanded, jax_function
from pymc_scalable_gp.ops._jax import register_jax
from pymc_scalable_gp.ops.repeat import outside, repeat
from pymc_scalable_gp.utils.checks import RefuseShape

LOG_2PI = float(np.log(2.0 * np.pi))
LIMIT = 100  # steps of the search
ADJOINT_LIMIT = 50
# What is left after the last step, in units of each row's information: the step times its ratio to the one
# before, of which Newton's next step is the square.
TOLERANCE = 1e-7
ADJOINT_TOLERANCE = 1e-8
TRIES = 40  # of a step: the whole, or the best of it and its halves
# A step as short as this is taken whole, in units of each row's information: with neighbours C + diag(v) is
# approximated at each v anew, and the mode is not quite where the objective is highest.
SHORT = 1.0
ROUNDING = 1e-9  # of the objective
# Information of rows, times the mean prior variance, in steps to the mode, which is the same: of less any
# step is short in its units, and its targets are so far away that rounding takes the step.
LEAST = 1e-8
# Information of rows, over their squared slopes and the inverse prior variance: with less the pseudo-target
# is so many sds away that rounding takes what it says, and a row with no more says nothing.
FLOOR = 1e-10
FALL = 1.0  # of the objective, that an accelerated step may lead to: further down it leads astray
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
        data = inner.data
        prior = data.feature_map.kernel_diag(data.X.tensor).astype("float64").mean()
        self.scale = pt.maximum(prior, 1e-300)
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

    def _at(self, f, y):
        """Log density (n,), slope and information: rows where it is not positive say next to nothing."""
        logp, g, W = self.rows.at(f, y)
        return logp, g, pt.maximum(W, FLOOR * (g**2 + 1.0 / self.scale))

    def _for_step(self, f, y):
        """As `_at`, where a step is taken."""
        logp, g, W = self._at(f, y)
        return logp, g, pt.maximum(W, LEAST / self.scale)

    def pseudo(self, f, y):
        """Targets (n,) and noise variances (n,) that stand for the likelihood near f."""
        _, g, W = self._at(f, y)
        return f + g / W, 1.0 / W

    def solved(self, t, v):
        """``S^-1 (t - mu)`` (n,)."""
        return -self._given(self.normal_slope, t, v)

    def density(self, f, y):
        """``log N(t; mu, S) + sum_i [log p(y_i | f_i) - log N(t_i; f_i, v_i)]``."""
        logp, g, W = self._at(f, y)
        own = -0.5 * (LOG_2PI - pt.log(W) + g**2 / W)
        return self._given(self.normal_logp, f + g / W, 1.0 / W) + (logp - own).sum()

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
        steps = towards, solved - a
        length = pt.sqrt((W * towards**2).max())
        slow, share_back = _acceleration(towards, way, length, step, W, length < SHORT)
        back = share_back * (newton - goal), share_back * (solved - solved_before)
        near = length < SHORT, pt.switch(slow, psi - FALL, -np.inf)
        reached, full, *moved = self._tried((f, a), steps, back, psi, near, y)
        last, slow = pt.switch(full, length, 1.0 + length), slow & full
        psi_after = pt.switch(slow, pt.minimum(reached, psi) - FALL, reached)
        there = pt.sqrt((moved[2] * towards**2).max())  # a long way from where rows say nothing
        left = _remaining(pt.maximum(last, there), step, slow)
        after = [*moved, newton, towards, solved, psi_after, last, left]
        floor, *at_mean = self._for_step(self.mean, y)
        floor, none = floor.sum(), pt.zeros_like(self.mean)
        start = [self.mean, *at_mean, *[none] * 4, floor, _FAR, _FAR]
        if self.start is not None:
            known = pt.isfinite(self.start).all()
            lost = pt.isinf(step) & pt.isinf(psi) & (reached < floor)
            after = [pt.switch(lost, old, new) for old, new in zip(start, after, strict=True)]
            start[0] = pt.switch(known, self.start, self.mean)
            start[1:3] = self._for_step(start[0], y)[1:]
            start[7] = pt.switch(known, -np.inf, floor)  # whatever the first step leads to
        done = ~(after[-1] > TOLERANCE)  # NaN too
        found = repeat(places, after, start, done, LIMIT)
        return found[0], found[-1]

    def _tried(self, point, steps, back, psi, near, y):
        """The objective after a step, whether all of it was taken, and f, slope, information and a there.

        All of it, accelerated, if it is short or the objective does not fall; else the best of its halves.
        `near`: whether it is short, and a floor of the objective then. Where slopes are not finite, the
        objective counts as -inf.
        """
        is_short, least = near
        places = [pt.scalar(name, dtype="float64") for name in ("share", "best")]
        places += [self.rows.vector(name) for name in ("f", "slope", "information", "a")]
        share, best, *held = places
        whole = pt.eq(share, 1.0)
        f, a = (
            x + share * step - pt.switch(whole, off, 0.0)
            for x, step, off in zip(point, steps, back, strict=True)
        )
        logp, g, W = self._for_step(f, y)
        value = logp.sum() - 0.5 * (a * (f - self.mean)).sum()
        value = pt.switch(pt.isfinite(value + g.sum() + W.sum()), value, -np.inf)
        stays = is_short & ((W * steps[0] ** 2).max() < SHORT**2)  # there too
        stays = stays & pt.isfinite(value) & (value >= least)
        done = whole & (stays | (value >= psi - ROUNDING * pt.abs(psi)))
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
            away = ((t - self.mean) ** 2).sum()  # 0 where all targets say what the mean does
            scale = pt.sqrt(pt.switch(away > 0.0, away, 1.0) / pt.maximum((q**2).sum(), 1e-300))
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
        y = graph.rows.y
        if graph.rows.size is None:  # one of X and y may be replaced
            words = f"X has another number of rows than y {REPLACE_BOTH}"
            y = RefuseShape(words)(y, pt.eq(y.shape[0], graph.mean.shape[0]))
        f, left = graph.mode(y)
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
            next(grads) * cotangents[0] if is_float else DisconnectedType()() for is_float in self._floats()
        ]

    def connection_pattern(self, node):
        """The density alone can be differentiated."""
        return [[is_float, False, False] for is_float in self._floats()]


class LaplaceGradient(Expanded):
    """Gradient in the floats among (mode, targets, parameters): see :meth:`LaplaceGraph.carried`."""

    def __init__(self, graph: LaplaceGraph, known, floats):
        f = graph.rows.vector("mode")
        # Places that do not depend on one another, as a variable of the model does on its prior's parents.
        places = [place.type() for place in known]
        given = dict(zip(known, places, strict=True))
        (carried,) = graph_replace([graph.carried(f, graph.rows.y)], given, strict=False)
        wanted = [place for place, is_float in zip(places, floats, strict=True) if is_float]
        grads = pt.grad(carried, wanted, disconnected_inputs="ignore")
        super().__init__([f, *places], grads)

    def pullback(self, inputs, outputs, cotangents):
        """Raise NotImplementedError: without a word a Hessian would be that of the priors alone."""
        raise NotImplementedError(
            "a density under likelihood= has no second derivatives: take differences of its gradient"
        )


@register_jax(LaplaceGradient, differentiable=False)
@register_jax(LaplaceDensity)
def jax_laplace(op):
    """The graph itself."""
    found = jax_function(op.places, op.outputs)
    return lambda *inputs: tuple(found(*inputs))
