"""Hybrid choice of inducing points: swaps of rows, and steps on the hyperparameters, in turn."""

import time
import warnings
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.blocking import DictToArrayBijection, RaveledVars
from pymc.progress_bar import create_simple_progress
from pymc.pytensorf import join_nonshared_inputs
from pytensor.graph.traversal import ancestors
from scipy import optimize

from pymc_scalable_gp.cov.evaluate import kernel_diag, kernel_matrix
from pymc_scalable_gp.methods.cholqr.pivots import Candidates, PivotFactor, grow, swap
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.utils.evaluate import FEW_CALLS

# Swaps between two random draws of the information pivots.
REDRAW = 20


@dataclass(frozen=True)
class InducingSelection:
    """Result of ``select_inducing``.

    Attributes
    ----------
    indices : array, shape (m,)
        Rows of X that were chosen: ``pm.gp.MarginalApprox`` takes ``Xu=X[indices]``.
    point : dict
        Hyperparameters by name, untransformed: ``pm.sample(initvals=selection.point)``.
    objective : array
        Minus the log of the approximate marginal likelihood (or its bound) times the priors, at the start
        and after every phase. It never rises but by rounding.
    proposed, accepted : array, shape (rounds,)
        Swaps that were tried and made.
    """

    indices: np.ndarray
    point: dict[str, np.ndarray]
    objective: np.ndarray
    proposed: np.ndarray
    accepted: np.ndarray


class Target:
    """Kernel columns, noise and objective of a GP as functions of its free hyperparameters."""

    def __init__(self, gp, X, y, sigma, model):
        self.X = X
        points, some = pt.matrix("points", dtype="float64"), pt.constant(X[: min(len(X), 5)])
        outputs = {
            "columns": kernel_matrix(gp.cov_func, pt.constant(X), points),
            "diag": kernel_diag(gp.cov_func, pt.constant(X)),
            "residual": y - gp.mean_func(pt.constant(X)),
            "noise": sigma**2,
        }
        features = gp._map.features_from(pt.constant(X), points)
        # What the swaps minimise too: FITC chooses its points by DTC.
        density = lowrank_logp(
            features, outputs["noise"], outputs["residual"],
            kdiag=outputs["diag"], approx="VFE" if gp.approx == "VFE" else "DTC",
        )[0]  # fmt: skip
        seen = set(ancestors([kernel_matrix(gp.cov_func, some), *outputs.values()]))
        free = [] if model is None else [rv for rv in model.free_RVs if rv in seen]
        self.free, self.model, self.point_info = free, model, None
        graphs, prior = [*outputs.values(), density], pt.constant(0.0)
        joined, self.start = pt.dvector("theta"), np.zeros(0)
        if free:
            values = [model.rvs_to_values[rv] for rv in free]
            start = model.initial_point()
            start = {v.name: start[v.name] for v in values}
            x0 = DictToArrayBijection.map(start)
            self.values, self.point_info, self.start = values, x0.point_map_info, x0.data
            graphs = model.replace_rvs_by_values(graphs)
            prior = model.logp(vars=free, jacobian=False)
            (*graphs, prior), joined = join_nonshared_inputs(start, [*graphs, prior], values)
        columns, diag, residual, noise, density = graphs
        options = {"mode": FEW_CALLS, "on_unused_input": "ignore", "allow_input_downcast": True}
        self.columns = pytensor.function([joined, points], columns, **options)
        self.rest = pytensor.function([joined], [diag, residual, noise, prior], **options)
        loss = -(density + prior)
        slope = pt.grad(loss, joined, disconnected_inputs="ignore") if free else joined
        self.loss = pytensor.function([joined, points], [loss, slope], **options)

    def at(self, theta):
        """Kernel columns and diagonal, residuals, noise variance and log prior at a point."""
        diag, residual, noise, prior = self.rest(theta)
        return _AtPoint(self, theta, np.asarray(diag, float)), residual, float(noise), float(prior)

    def untransformed(self, theta) -> dict[str, np.ndarray]:
        """Values of the free variables by name."""
        if not self.free:
            return {}
        best = DictToArrayBijection.rmap(RaveledVars(theta, self.point_info))
        names = {rv.name for rv in self.free}
        shown = [v for v in self.model.unobserved_value_vars if v.name in names]
        evaluate = self.model.compile_fn(
            shown, inputs=self.values, on_unused_input="ignore", mode=FEW_CALLS
        )
        return dict(zip([v.name for v in shown], evaluate(best), strict=True))

    def starting_at(self, point):
        """Flat values for a point of untransformed values; missing ones from the initial point."""
        if not self.free or not point:
            return self.start
        start = self.model.initial_point(0)
        strategies = {rv: point[rv.name] for rv in self.free if rv.name in point}
        make = pm.initial_point.make_initial_point_fn(model=self.model, overrides=strategies)
        start = make(0)
        return DictToArrayBijection.map({v.name: start[v.name] for v in self.values}).data


class _AtPoint:
    """The kernel matrix at one point: its columns and diagonal."""

    def __init__(self, target, theta, diag):
        self.target, self.theta, self._diag = target, theta, diag

    def columns(self, rows):
        """Columns (n, k)."""
        target = self.target
        return np.asarray(target.columns(self.theta, target.X[rows]), dtype=float)

    def diag(self):
        """Diagonal (n,)."""
        return self._diag


class Hybrid:
    """Block coordinate descent in the pivots and in the hyperparameters."""

    def __init__(self, target, variational, candidates, rng, verified=64):
        self.target, self.variational = target, variational
        self.count, self.rng, self.verified = candidates, rng, verified

    def begin(self, theta, pivots, given=False):
        """Factor at a start; `given`: the user chose these pivots."""
        self.theta = theta
        self.factor, self.prior, replaced = self._factor(theta, pivots)
        if self.factor.size < len(pivots):
            text = (
                f"only {self.factor.size} of {len(pivots)} inducing points are independent at the "
                "start (duplicates, or a smooth kernel): going on with those"
            )
        elif given and replaced:
            text = (
                f"{replaced} of the {len(pivots)} rows to start from depend on the others "
                "(duplicates, or a smooth kernel): other rows took their places"
            )
        else:
            return
        warnings.warn(text, UserWarning, stacklevel=4)

    def _factor(self, theta, pivots):
        """Factor at a point, with other rows for pivots that depend on the rest, and how many."""
        kernel, residual, noise, prior = self.target.at(theta)
        factor = PivotFactor(kernel, residual, noise, pivots)
        missing = len(pivots) - factor.size
        outside = np.setdiff1d(np.arange(len(residual)), factor.pivots[: factor.size])
        for row in self.rng.permutation(outside)[: 5 * missing]:
            column = factor.residual(kernel.columns(np.array([row]))[:, 0], row)
            if column is not None:
                factor.append(row, column)
            if factor.size == len(pivots):
                break
        return factor, prior, missing

    @property
    def pivots(self):
        """Rows chosen."""
        return self.factor.pivots[: self.factor.size].copy()

    def value(self):
        """Present objective."""
        return self.factor.objective(self.variational) - self.prior

    def swaps(self, count):
        """Try to replace `count` pivots; the number replaced."""
        factor, made = self.factor, 0
        candidates = Candidates(factor, self.count, self.rng, self.verified)
        places = factor.pivots[self.rng.permutation(factor.size)[:count]]
        for step, row in enumerate(places):
            if step and step % REDRAW == 0:
                factor.renew()
                candidates.redraw()
            place = int(np.flatnonzero(factor.pivots[: factor.size] == row)[0])
            made += swap(factor, candidates, place, self.variational)
        return len(places), made

    def greedy(self):
        """Choose all pivots anew, one after the other, if that lowers the objective."""
        kernel, residual, noise, _ = self.target.at(self.theta)
        count = self.factor.size
        factor = PivotFactor(kernel, residual, noise, [], room=count)
        candidates = Candidates(factor, self.count, self.rng, self.verified)
        for step in range(count):
            if step and step % REDRAW == 0:
                candidates.redraw()
            grow(factor, candidates, self.variational)
        if factor.size == count and factor.objective(self.variational) < self.value() + self.prior:
            self.factor = factor

    def improve(self, steps):
        """L-BFGS steps on the hyperparameters, taken where the objective falls."""
        if not len(self.theta) or not steps:
            return
        points, wall = self.target.X[self.pivots], self.value()

        def loss(theta):
            value, slope = self.target.loss(theta, points)
            if not np.isfinite(value):
                return wall + abs(wall) + 10.0, np.zeros_like(theta)
            return float(value), np.asarray(slope, dtype=float)

        result = optimize.minimize(
            loss, self.theta, method="L-BFGS-B", jac=True, options={"maxiter": steps}
        )
        factor, prior, _ = self._factor(result.x, self.pivots)
        if factor.objective(self.variational) - prior < self.value():
            self.factor, self.prior, self.theta = factor, prior, result.x


def run(hybrid, rounds, swaps, steps, tolerance, seconds, progressbar, greedy):
    """Alternate until the objective stalls, or rounds or time are over: history and counts.

    With `greedy`, all points are first chosen anew, at hyperparameters fitted to those of the start.
    """
    began, history, counts = time.perf_counter(), [hybrid.value()], []
    progress = create_simple_progress(progressbar=progressbar)
    with progress:
        task = progress.add_task("Choosing inducing points", completed=0, total=rounds)
        try:
            if greedy:
                hybrid.improve(steps)
                hybrid.greedy()
                history.append(hybrid.value())
            for _ in range(rounds):
                if seconds is not None and time.perf_counter() - began > seconds:
                    break
                before = history[-1]
                counts.append(hybrid.swaps(min(swaps, hybrid.factor.size)))
                history.append(hybrid.value())
                hybrid.improve(steps)
                history.append(hybrid.value())
                progress.update(task, advance=1)
                if before - history[-1] < tolerance * len(hybrid.factor.y):
                    break
        except KeyboardInterrupt:
            warnings.warn(
                "interrupted: the points chosen so far are returned", UserWarning, stacklevel=3
            )
    counts = np.array(counts, dtype=int).reshape((-1, 2))
    return np.array(history), counts[:, 0], counts[:, 1]
