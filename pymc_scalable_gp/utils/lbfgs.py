"""L-BFGS with a wall where the objective is not finite: the one optimiser of modes and starts."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from better_optimize import minimize
from scipy.sparse.linalg import LinearOperator

# A run that gained less than this is not begun again.
WORTH_A_RESTART = 1e-2


class Lowest(NamedTuple):
    """The lowest point met (p,), its value, and L-BFGS's inverse Hessian there (None: it has none)."""

    theta: np.ndarray
    value: float
    hess_inv: LinearOperator | None


def lowest(
    objective, start: np.ndarray, *, maxiter: int, reach: float | np.ndarray | None = None,
    restarts: int = 0, stop: Callable | None = None, progressbar: bool = False, **options,
) -> Lowest:  # fmt: skip
    """Lowest value of `objective` that L-BFGS finds, and where.

    `objective` takes theta (p,) to value and gradient (p,). Where either is not finite L-BFGS meets a wall:
    a value above the last, with no slope, from which its line search comes back. The value found is never
    above the one at `start`; NaN, with theta = start, where `objective` is not finite there.

    A run has `maxiter` iterations, in which no entry goes farther than `reach`, one or (p,), from its
    start, and ends where ``stop(theta, value)`` is true after one. Further runs, `restarts` at most, go on
    from where one ended, while they gain: a wall or a bad scale may end a run early. `options` are the
    method's: ``tol``, or ``ftol``, ``gtol`` and ``maxls``.
    """
    wall = _Wall(objective)
    wall(start)
    if wall.theta is None:
        return Lowest(start, np.nan, None)

    def after_iteration(result):
        if stop(result.x, result.fun):
            raise StopIteration

    if stop is not None:
        options["callback"] = after_iteration
    if reach is not None:
        options["bounds"] = list(zip(start - reach, start + reach, strict=True))
    for _ in range(1 + restarts):
        before = wall.value
        found = minimize(
            wall, wall.theta, method="L-BFGS-B", jac=True, progressbar=progressbar,
            maxiter=maxiter, **options,
        )  # fmt: skip
        if before - wall.value < WORTH_A_RESTART:
            break
    return Lowest(wall.theta, wall.value, found.get("hess_inv"))


class _Wall:
    """`objective`, with a finite value and no slope where it is not finite; it keeps the best point.

    A search may take a point behind the wall for its end, flat as it is there: what counts is the best
    of the points that could be evaluated. The last point is not evaluated twice.
    """

    def __init__(self, objective):
        self.objective, self.height = objective, np.inf
        self.theta, self.value = None, np.inf
        self._last: tuple | None = None

    def __call__(self, theta):
        if self._last is None or not np.array_equal(theta, self._last[0]):
            self._last = np.array(theta), self._evaluated(theta)
        return self._last[1]

    def _evaluated(self, theta):
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            value, gradient = self.objective(theta)
        value, gradient = float(value), np.asarray(gradient, dtype="float64")
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return self.height, np.zeros_like(theta)
        if value < self.value:
            self.theta, self.value = np.array(theta), value
        # Just above the last value: a far higher one would make the line search's next step tiny.
        self.height = value + abs(value) + 10.0
        return value, gradient
