"""Partial Cholesky factor of a kernel matrix at chosen pivots, with a QR factor: the state of CholQR."""

import numba
import numpy as np
from scipy.linalg import solve_triangular

from pymc_scalable_gp.core.features.nystrom import DEPENDENT, INDEFINITE, KernelColumns, indefinite

# Error in an entry of the kernel matrix, as a share of the largest prior variance: about 1e-14, more
# between inputs that lie far apart.
ROUNDING = 1e-10

# The factors are computed again when the basis has lost this much of its orthogonality.
DRIFT = 1e-9

# A candidate whose residual variance is below this share of the largest prior variance is passed over.
NEARLY = 1e-8

# Entries of a block of candidates' columns.
_ENTRIES = 2**22

# Kernel columns that are held at a time while the factors are computed.
_CHUNK = 32

# Columns that are rotated at a time.
_BLOCK = 1024


class PivotFactor:
    r"""``K[:, I] K[I, I]^{-1} K[I, :] = L L'`` and ``[L; sigma I] = Q R`` for pivots I.

    Gives the marginal likelihood of the residuals `y` (n,) under ``L L' + sigma^2 I``, `noise` = sigma^2,
    and follows the change of a pivot in O(m n). Of the given `pivots` (m,), those that depend on earlier
    ones are left out; there is `room` for as many pivots, or more. The transposes of L and Q are stored.
    """

    def __init__(self, kernel: KernelColumns, y, noise: float, pivots, room=None):
        self.kernel, self.y, self.noise = kernel, y, float(noise)
        self.scale = float(kernel.diag.max())
        self.room = len(pivots) if room is None else room
        self._factor(np.asarray(pivots, dtype=int))

    def _factor(self, wanted):
        n, most = len(self.y), self.room
        self.L, self.Q = np.zeros((most, n)), np.zeros((most, n + most))
        self.R, self.pivots = np.zeros((most, most)), np.zeros(most, dtype=int)
        self.size = 0
        for start in range(0, len(wanted), _CHUNK):
            rows = wanted[start : start + _CHUNK]
            for row, column in zip(rows, self.kernel.columns(rows).T, strict=True):
                new = self.residual(row, column=column)
                if new is not None:
                    self.append(row, new)

    def residual(self, row, size=None, column=None):
        """Next column of L (n,) if `row` joins the first `size` pivots; None where it depends on them.

        `column` is that of K, computed when left out. Raises ValueError if the residual variance is
        negative beyond rounding: K is not positive semidefinite.
        """
        size = self.size if size is None else size
        if column is None:
            column = self.kernel.columns(np.array([row]))[:, 0]
        out = column - self.L[:size, row] @ self.L[:size]
        if out[row] < -INDEFINITE * self.scale and out[row] < -self._rounding(row, size):
            raise indefinite(row, out[row], self.scale)
        if out[row] <= DEPENDENT * self.scale:
            return None
        return out / np.sqrt(out[row])

    def _rounding(self, row, size):
        """Largest rounding error in the residual variance of `row` given the first `size` pivots.

        With ``w = K[I, I]^{-1} K[I, row]`` that variance is ``(1, -w)' K (1, -w)``: an error of e in each
        entry of K makes one of up to ``e (1 + |w|_1)^2``. The weights w are large where pivots nearly
        depend on each other, as in polynomial extrapolation.
        """
        corner = self.L[:size, self.pivots[:size]]
        weights = solve_triangular(corner, self.L[:size, row])
        return ROUNDING * self.scale * (1.0 + np.abs(weights).sum()) ** 2

    def append(self, row, column):
        """Add pivot `row` with its column of L: O(m n)."""
        k, n = self.size, len(self.y)
        self.L[k], self.pivots[k] = column, row
        q, h, length = self._orthogonal(column, k)
        self.Q[k], self.Q[:k, n + k] = q, 0.0
        self.R[:k, k], self.R[k, k] = h, length
        self.size = k + 1

    def _orthogonal(self, column, k):
        """Unit vector for ``[column; sigma e_k]`` outside the first k of Q, its coordinates, its length."""
        n = len(self.y)
        q = np.zeros(self.Q.shape[1])
        q[:n], q[n + k] = column, np.sqrt(self.noise)
        total = np.zeros(k)
        for _ in range(2):  # twice is enough for working precision
            h = self.Q[:k] @ q
            q -= h @ self.Q[:k]
            total += h
        length = np.sqrt(q @ q)
        return q / length, total, length

    def to_last(self, place):
        """Move a pivot to the end of the order, without changing ``L L'``: O(m n)."""
        m, n = self.size, len(self.y)
        order = np.r_[np.arange(place), np.arange(place + 1, m), place]
        corner = self.L[:m, self.pivots[:m]].T[order]
        turns, left = _rotations(np.ascontiguousarray(corner), self.R[:m, :m], place)
        _rotate(self.L, place, turns)
        _rotate(self.Q, place, left)
        bottom = np.ascontiguousarray(self.Q[:m, n : n + m].T)
        _rotate(bottom, place, turns)
        self.Q[:m, n : n + m] = bottom.T
        self.pivots[:m] = self.pivots[:m][order]

    def gain(self, column, variational) -> float:
        """Fall of the objective when `column` joins all pivots but the last (equations 14-16)."""
        q, _, length = self._orthogonal(column, self.size - 1)
        data = (self.y @ q[: len(self.y)]) ** 2 / self.noise
        slack = column @ column / self.noise if variational else 0.0
        return 0.5 * (data + np.log(self.noise) - 2.0 * np.log(length) + slack)

    def gains(self, rows, keep, variational) -> np.ndarray:
        """As `gain`, for each of `rows` (c,) given the first `keep` pivots; -inf for dependent rows."""
        n = len(self.y)
        Q, found = self.Q[:keep, :n], []
        fitted = Q @ self.y
        for some in np.array_split(rows, min(len(rows), -(-len(rows) * n // _ENTRIES))):
            C = self.kernel.columns(some).T - self.L[:keep, some].T @ self.L[:keep]
            left = C[np.arange(len(some)), some]
            usable = left > NEARLY * self.scale
            C /= np.sqrt(np.where(usable, left, 1.0))[:, None]
            inside, length = C @ Q.T, np.einsum("cn,cn->c", C, C)
            outside = length - np.einsum("ck,ck->c", inside, inside)
            outside = np.maximum(outside, 0.0) + self.noise
            gain = (C @ self.y - inside @ fitted) ** 2 / (outside * self.noise)
            gain += np.log(self.noise / outside) + (length / self.noise if variational else 0.0)
            found.append(np.where(usable, 0.5 * gain, -np.inf))
        return np.concatenate(found)

    def objective(self, variational) -> float:
        """Minus the log marginal likelihood, or its variational bound, of y (the paper's F)."""
        n, m = len(self.y), self.size
        fitted = self.Q[:m, :n] @ self.y
        data = (self.y @ self.y - fitted @ fitted) / self.noise
        logdet = (n - m) * np.log(self.noise) + 2.0 * np.log(np.diag(self.R)[:m]).sum()
        slack = 0.0
        if variational:
            slack = (self.kernel.diag.sum() - np.vdot(self.L[:m], self.L[:m])) / self.noise
        return 0.5 * (data + logdet + slack + n * np.log(2.0 * np.pi))

    def drift(self) -> float:
        """Loss of orthogonality of Q, and error of ``[L; sigma I] = Q R``, along one vector."""
        m, n = self.size, len(self.y)
        probe = np.random.default_rng(0).standard_normal(m)
        unit = np.abs(self.Q[:m] @ (probe @ self.Q[:m]) - probe).max()
        product = (self.R[:m, :m] @ probe) @ self.Q[:m]
        direct = np.zeros_like(product)
        direct[:n], direct[n : n + m] = probe @ self.L[:m], np.sqrt(self.noise) * probe
        return max(unit, np.abs(product - direct).max() / np.abs(direct).max())

    def renew(self):
        """Compute the factors again if they have drifted."""
        if self.drift() > DRIFT:
            self._factor(self.pivots[: self.size].copy())


class Candidates:
    """Rows that may become pivots: approximate gains of all, exact gains of `verified` of them.

    The approximation uses `count` information pivots. A quarter of the exact gains are of the rows that it
    ranks first, the rest of random rows, which it may rank too low.
    """

    def __init__(self, factor: PivotFactor, count, rng, verified=64):
        self.factor, self.count, self.rng = factor, count, rng
        self.ranked = -(-verified // 4)
        self.drawn = verified - self.ranked
        self.redraw()

    def redraw(self):
        """Take other information pivots, at random outside the set."""
        factor = self.factor
        outside = np.setdiff1d(np.arange(len(factor.y)), factor.pivots[: factor.size])
        self.rows = self.rng.permutation(outside)[: self.count]
        L = factor.L[: factor.size]
        self.rest = factor.kernel.columns(self.rows).T - L[:, self.rows].T @ L

    def gains(self, keep, variational) -> np.ndarray:
        """Approximate gain of each row (n,) given the first `keep` pivots; -inf for these."""
        factor, n = self.factor, len(self.factor.y)
        rest, last = self.rest, factor.L[keep : factor.size]
        if len(last):
            rest = rest + last[:, self.rows].T @ last
        values, vectors = np.linalg.eigh(rest[:, self.rows])
        good = values > DEPENDENT * factor.scale
        F = (vectors[:, good] / np.sqrt(values[good])).T @ rest  # residual matrix: about F'F
        variance = np.einsum("zn,zn->n", F, F)
        usable = variance > NEARLY * factor.scale
        usable[factor.pivots[:keep]] = False
        variance = np.where(usable, variance, 1.0)
        Q = factor.Q[:keep, :n]
        inside = F @ Q.T
        length = np.einsum("zn,zn->n", F, (F @ F.T) @ F) / variance
        outside = length - np.einsum("zn,zn->n", F, (inside @ inside.T) @ F) / variance
        outside = np.maximum(outside, 0.0) + factor.noise
        aligned = (F @ (factor.y - (Q @ factor.y) @ Q)) @ F
        gain = aligned**2 / (variance * outside) / factor.noise + np.log(factor.noise / outside)
        gain = gain + length / factor.noise if variational else gain
        return np.where(usable, 0.5 * gain, -np.inf)

    def best(self, keep, variational) -> int | None:
        """Row of the largest exact gain given the first `keep` pivots; None where no row is independent."""
        factor = self.factor
        promised = self.gains(keep, variational)
        seen = np.flatnonzero(np.isfinite(promised))
        ranked = seen[np.argsort(-promised[seen])[: self.ranked]]
        # Of all rows: the approximation is blind far from the information pivots.
        others = np.delete(np.arange(len(promised)), factor.pivots[:keep])
        drawn = others[self.rng.integers(0, len(others), self.drawn)]
        rows = np.union1d(ranked, drawn)
        if not len(rows):
            return None
        gains = factor.gains(rows, keep, variational)
        place = int(np.argmax(gains))
        return int(rows[place]) if np.isfinite(gains[place]) else None

    def accept(self, old, new):
        """Follow a swap of L's last column from `old` (None: nothing) to `new`: O(z n)."""
        if old is not None:
            self.rest += np.outer(old[self.rows], old)
        self.rest -= np.outer(new[self.rows], new)


def swap(factor: PivotFactor, candidates: Candidates, place, variational) -> bool:
    """Replace one pivot by the best candidate if the objective falls; whether it did."""
    factor.to_last(place)
    keep = factor.size - 1
    row = candidates.best(keep, variational)
    if row is None or row == factor.pivots[keep]:
        return False
    old = factor.L[keep].copy()
    new = factor.residual(row, keep)
    if new is None or factor.gain(new, variational) <= factor.gain(old, variational):
        return False
    factor.size = keep
    factor.append(row, new)
    candidates.accept(old, new)
    return True


def grow(factor: PivotFactor, candidates: Candidates, variational) -> None:
    """Add the best candidate as a pivot, unless no row is independent of those chosen."""
    row = candidates.best(factor.size, variational)
    new = None if row is None else factor.residual(row)
    if new is not None:
        factor.append(row, new)
        candidates.accept(None, new)


@numba.njit
def _rotations(corner, R, start):
    """Rotations that make `corner` lower triangular again, and those that do so for R (in place)."""
    m = corner.shape[0]
    turns, left = np.zeros((m - start, 2)), np.zeros((m - start, 2))
    for k in range(start, m - 1):
        a, b = corner[k, k], corner[k, k + 1]
        length = np.hypot(a, b)
        c, s = a / length, b / length
        turns[k - start] = c, s
        for i in range(m):
            a, b = corner[i, k], corner[i, k + 1]
            corner[i, k], corner[i, k + 1] = c * a + s * b, c * b - s * a
            a, b = R[i, k], R[i, k + 1]
            R[i, k], R[i, k + 1] = c * a + s * b, c * b - s * a
        a, b = R[k, k], R[k + 1, k]
        length = np.hypot(a, b)
        c, s = a / length, b / length
        left[k - start] = c, s
        for j in range(k, m):
            a, b = R[k, j], R[k + 1, j]
            R[k, j], R[k + 1, j] = c * a + s * b, c * b - s * a
        R[k + 1, k] = 0.0
    return turns[: m - 1 - start], left[: m - 1 - start]


@numba.njit
def _rotate(rows, start, turns):
    """Apply rotations of neighbouring rows, in blocks of columns that stay in cache."""
    for first in range(0, rows.shape[1], _BLOCK):
        last = min(first + _BLOCK, rows.shape[1])
        for k in range(len(turns)):
            c, s = turns[k]
            upper, lower = rows[start + k], rows[start + k + 1]
            for t in range(first, last):
                a, b = upper[t], lower[t]
                upper[t], lower[t] = c * a + s * b, c * b - s * a
