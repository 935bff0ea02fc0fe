"""First proposals: a t around each mode."""

import numpy as np
from scipy import stats

from pymc_scalable_gp.importance.mode import Mode
from pymc_scalable_gp.importance.proposals import StudentT
from pymc_scalable_gp.importance.skew import SKEWS, Skew

ASIDE = 2.0  # standard deviations from a mode where skew is looked for
MANY = 12  # parameters above which a t of the mode's curvature seldom arrives
WIDER = 0.25  # of the precision along an axis, at least, is left
MOST_STEPS, GROWN = 4, 1.1  # and the widening, on average, that asks for a further one


def first_proposal(density, mode: Mode, rng) -> StudentT:
    """The first t around a mode; in many dimensions `typical`, as long as it gets wider by a tenth."""
    t = at_mode(density, mode)
    if len(mode.location) <= MANY:
        return t
    for _ in range(MOST_STEPS):
        before, t = t, typical(density, t, rng)
        if t.log_volume - before.log_volume < len(mode.location) * np.log(GROWN):
            break
    return t


def at_mode(density, mode: Mode) -> StudentT:
    """A t with the curvature at a mode, as skew as the density there.

    Each parameter is moved `ASIDE` sds to either side, with the others where a normal's mean would be given
    it. If the density falls there by ``d+`` and ``d-``, as two halves of normals would, their sds are as
    ``sqrt(d-)`` to ``sqrt(d+)``, and the skew is ``log(d+ / d-) / 4``.
    """
    reach = ASIDE * (mode.factor @ mode.factor.T) / mode.sds[:, None]
    values = density.values(np.concatenate([mode.location + reach, mode.location - reach]))
    falls = (mode.logp - values).clip(0.1, 100.0).reshape(2, -1)
    skew = (0.25 * np.log(falls[0] / falls[1])).clip(SKEWS[0], SKEWS[-1])
    found = Skew(mode.location, mode.sds, skew)
    return StudentT(found.forward(mode.location), np.cosh(skew)[:, None] * mode.factor, found)


def typical(density, t: StudentT, rng) -> StudentT:
    r"""The t moved to, and widened by, the gradients where its points will lie, ``sqrt(p)`` sds off.

    With gradients ``g_i+-`` at ``+-sqrt(p) q_i`` in units of the factor, q_i the rows of a random rotation,
    cubature gives the expected gradient ``g = sum_i (g_i+ + g_i-) / (2 p)`` and Hessian ``H = sum_i (g_i+ -
    g_i-) q_i' / (2 sqrt(p))`` (Arasaratnam and Haykin 2009). The nearest normal has ``g = 0`` and precision
    ``-H`` (Opper and Archambeau 2009): one Newton step goes there, at most ``sqrt(p)`` long. No axis gets
    narrower, nor its variance over four times as large. Where a gradient is not finite, the t stays as it
    is.
    """
    p = len(t.location)
    rotation, far = stats.ortho_group(p, seed=rng).rvs(), np.sqrt(p)
    away = far * rotation @ t.factor.T
    points = t.skew.inverse(np.concatenate([t.location + away, t.location - away]))
    gradient = t.skew.gradient(points, density.slopes(points)) @ t.factor
    if not np.isfinite(gradient).all():
        return t
    hessian = (gradient[:p] - gradient[p:]).T @ rotation / (2.0 * far)
    precision, axes = np.linalg.eigh(-0.5 * (hessian + hessian.T))
    precision = precision.clip(WIDER, 1.0)
    move = axes @ (axes.T @ gradient.mean(axis=0) / precision)
    move *= far / max(np.linalg.norm(move), far)
    return StudentT(t.location + t.factor @ move, t.factor @ (axes / np.sqrt(precision)), t.skew)
