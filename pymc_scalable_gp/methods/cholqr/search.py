"""Hybrid choice of inducing points: swaps of rows, and steps on the hyperparameters, in turn."""

import time
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pymc.progress_bar import create_simple_progress

from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.features.nystrom import KernelColumns, nystrom
from pymc_scalable_gp.core.fit.hyperparameters import Hyperparameters
from pymc_scalable_gp.cov.kernels import kernel_diag, kernel_matrix
from pymc_scalable_gp.methods.cholqr.pivots import NEARLY, Candidates, PivotFactor, grow, swap
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.utils.compiled import compiled
from pymc_scalable_gp.utils.graphs import is_random, model_here
from pymc_scalable_gp.utils.warn import warn

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

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.linspace(0.0, 1.0, 40)[:, None]
    >>> gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern52(1, ls=0.3), n_inducing=6)
    >>> chosen = gp.select_inducing(X, np.sin(6.0 * X[:, 0]), 0.1, rounds=2, progressbar=False)
    >>> X[chosen.indices].shape
    (6, 1)
    >>> bool(chosen.objective[-1] <= chosen.objective[0])
    True
    """

    indices: np.ndarray
    point: dict[str, np.ndarray]
    objective: np.ndarray
    proposed: np.ndarray
    accepted: np.ndarray


class Target:
    """Kernel columns, noise and objective of a GP as functions of its free hyperparameters theta."""

    def __init__(self, gp, X, y, sigma, model):
        self.X = X
        points, rows = pt.matrix("points", dtype="float64"), pt.constant(X)
        columns, diag = kernel_matrix(gp.cov_func, rows, points), kernel_diag(gp.cov_func, rows)
        residual, noise = y - mean_vector(gp.mean_func, rows), sigma**2
        # What the swaps minimise too: FITC chooses its points by DTC.
        approx = "VFE" if gp.approx == "VFE" else "DTC"
        features = nystrom(gp.cov_func, rows, points)
        density = lowrank_logp(features, noise, residual, kdiag=diag, approx=approx).logp
        graphs = [columns, diag, residual, noise, density]
        if is_random(*graphs, known=[points]):  # a density without its model is that of one draw
            model = model_here(model)
        self.hyper = Hyperparameters(graphs, model)
        theta = pt.vector("theta", dtype="float64", shape=(self.hyper.size,))
        columns, *terms, density = self.hyper.as_functions_of(theta, graphs)
        prior = self.hyper.log_prior(theta)
        self.columns = compiled([theta, points], columns)
        self.terms = compiled([theta], [*terms, prior])
        loss = -(density + prior)
        slope = pt.grad(loss, theta, disconnected_inputs="ignore") if self.hyper.size else theta
        self.loss = compiled([theta, points], [loss, slope])

    def at(self, theta):
        """Kernel, residuals, noise variance and log prior at a point."""
        diag, residual, noise, prior = self.terms(theta)
        kernel = KernelColumns(
            np.asarray(diag, float), lambda rows: np.asarray(self.columns(theta, self.X[rows]), float)
        )
        return kernel, residual, float(noise), float(prior)


class Hybrid:
    """Block coordinate descent in the pivots and in the hyperparameters."""

    def __init__(self, target, variational, candidates, rng, verified=64):
        self.target, self.variational = target, variational
        self.count, self.rng, self.verified = candidates, rng, verified

    def begin(self, theta, pivots, given=False):
        """Factor at a start; `given`: the user chose these pivots."""
        self.theta, self.wanted = theta, len(pivots)
        with np.errstate(all="ignore"):  # the error below tells of a bad start
            self.factor, self.prior, replaced = self._factor(theta, pivots)
            value = self.value()
        if not np.isfinite(value):
            raise ValueError(
                f"the objective is {value} at the start, {self.target.hyper.in_words(theta)}: give "
                "point={...} with values of plausible size"
            )
        if given and replaced and self.factor.size == self.wanted:
            warn(
                f"{replaced} of the {len(pivots)} rows to start from depend on the others "
                "(duplicates, or a smooth kernel): other rows took their places"
            )

    def _factor(self, theta, pivots):
        """Factor and log prior at a point, and how many pivots were dropped as they depend on others.

        Other rows take the places of those, and places that were left free at other hyperparameters.
        """
        kernel, residual, noise, prior = self.target.at(theta)
        factor = PivotFactor(kernel, residual, noise, pivots, room=self.wanted)
        replaced = len(pivots) - factor.size
        outside = np.setdiff1d(np.arange(len(residual)), factor.pivots[: factor.size])
        order = self.rng.permutation(outside)
        if factor.size < self.wanted:
            left = kernel.diag - (factor.L**2).sum(axis=0)
            order = order[left[order] > NEARLY * factor.scale]
        for row in order[: 5 * (self.wanted - factor.size)]:
            column = factor.residual(row)
            if column is not None:
                factor.append(row, column)
            if factor.size == self.wanted:
                break
        return factor, prior, replaced

    @property
    def pivots(self):
        """Rows chosen."""
        return self.factor.pivots[: self.factor.size].copy()

    def value(self):
        """Present objective."""
        return self.factor.objective(self.variational) - self.prior

    def swaps(self, count):
        """Try to replace `count` pivots: numbers of those tried and replaced."""
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
        """Choose all pivots again, one after the other, if that lowers the objective."""
        kernel, residual, noise, _ = self.target.at(self.theta)
        factor = PivotFactor(kernel, residual, noise, [], room=self.wanted)
        candidates = Candidates(factor, self.count, self.rng, self.verified)
        for step in range(self.wanted):
            if step and step % REDRAW == 0:
                candidates.redraw()
            grow(factor, candidates, self.variational)
        lower = factor.objective(self.variational) < self.factor.objective(self.variational)
        if lower and factor.size >= self.factor.size:  # the candidates may run out before
            self.factor = factor

    def improve(self, steps):
        """L-BFGS steps on the hyperparameters, taken where the objective falls."""
        if not len(self.theta) or not steps:
            return
        points = self.target.X[self.pivots]
        theta, value = self.target.hyper.minimize(
            lambda theta: self.target.loss(theta, points), self.theta, maxiter=steps
        )
        if not np.isfinite(value):
            warn(
                "the hyperparameters stay where they are: the likelihood at these points is not finite "
                f"at {self.target.hyper.in_words(self.theta)}"
            )
            return
        factor, prior, _ = self._factor(theta, self.pivots)
        if factor.objective(self.variational) - prior < self.value():
            self.factor, self.prior, self.theta = factor, prior, theta


def run(hybrid, rounds, swaps, steps, tolerance, seconds, progressbar, greedy):
    """Alternate until the objective stalls or rounds or time end; all points anew first if `greedy`."""
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
            progress.update(task, completed=rounds)  # it may have converged before
        except KeyboardInterrupt:
            warn("interrupted: the points chosen so far are returned")
    counts = np.array(counts, dtype=int).reshape((-1, 2))
    return np.array(history), counts[:, 0], counts[:, 1]
