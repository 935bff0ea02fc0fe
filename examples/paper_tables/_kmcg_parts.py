"""The pieces of kmcg.py: exact solutions, prefixes of a Krylov basis, inducing inputs by row blocks."""

import resource
import time
from functools import reduce
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
from scipy import linalg

import pymc_scalable_gp as sgp

JITTER = 1e-12  # as in KMCGMarginal
BLOCK = 20_000


class Basis(NamedTuple):
    """Result of `sgp.ops.lanczos`, and the length of the start vector."""

    Q: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    length: float


class Exact(NamedTuple):
    """What a method should find: mean and variance at test points, log evidence."""

    mean: np.ndarray
    var: np.ndarray
    evidence: float


def gauss(a, b):
    """Squared exponential kernel with lengthscale 1."""
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2.0 * a @ b.T
    return np.exp(-0.5 * np.maximum(squares, 0.0))


def krylov(factors, y, steps) -> Basis:
    """Basis of the Kronecker product of `factors`; a single one may be an operator already."""
    operator = factors if not isinstance(factors, list) else sgp.linops.Kronecker(factors)
    outputs = sgp.ops.lanczos(operator, y, steps)
    Q, alpha, beta = pytensor.function([], list(outputs), mode="FAST_COMPILE")()
    return Basis(Q[:, :-1], alpha, beta, float(np.linalg.norm(y)))


def prefixes(basis, z, n, noise, prior=1.0):
    """(mean, var, evidence) by KMCG, and CG's mean, after 1, 2, ... steps; z is ``k(x*, X) Q``."""
    T = np.diag(basis.alpha) + np.diag(basis.beta[:-1], 1) + np.diag(basis.beta[:-1], -1)
    for p in range(1, len(basis.alpha) + 1):
        jitter = JITTER * basis.alpha[:p].sum() * np.eye(p)
        L = linalg.cholesky(T[:p, :p] + jitter, lower=True)
        stacked = np.vstack([T[:p, :p], basis.beta[p - 1] * np.eye(p)[-1]])
        A = linalg.solve_triangular(L, stacked.T, lower=True).T
        phi = linalg.solve_triangular(L, z[:, :p].T, lower=True).T
        B = linalg.cho_factor(A.T @ A + noise * np.eye(p), lower=True)
        Ay = A[0] * basis.length
        coef = linalg.cho_solve(B, Ay)
        var = prior - (phi**2).sum(1) + noise * np.einsum(
            "ij,ji->i", phi, linalg.cho_solve(B, phi.T)
        )  # fmt: skip
        evidence = -0.5 * ((basis.length**2 - Ay @ coef) / noise + (n - p) * np.log(noise))
        evidence -= np.log(np.diag(B[0])).sum() + 0.5 * n * np.log(2 * np.pi)
        start = np.eye(p)[0] * basis.length
        cg = z[:, :p] @ np.linalg.solve(T[:p, :p] + noise * np.eye(p), start)
        yield phi @ coef, var, evidence, cg


def relative(found, exact):
    """Average relative error."""
    return float(np.mean(np.abs(found - exact) / np.abs(exact)))


def krylov_errors(basis, z, exact, n, noise, prior=1.0):
    """Curves of relative errors by the number of steps."""
    rows = [
        (relative(m, exact.mean), relative(v, exact.var), relative(e, exact.evidence),
         relative(cg, exact.mean))
        for m, v, e, cg in prefixes(basis, z, n, noise, prior)
    ]  # fmt: skip
    names = ("mean, KMCG", "variance, KMCG", "evidence, KMCG", "mean, CG")
    return dict(zip(names, np.array(rows).T, strict=True))


class Grid:
    """A simulated field on a grid of jittered axes, its exact posterior, and 100 test points."""

    def __init__(self, shape, noise, seed):
        rng = np.random.default_rng(seed)
        self.shape, self.noise, self.n = shape, noise, int(np.prod(shape))
        self.axes = [
            np.sort(np.linspace(-g / 4, g / 4, g) + np.sqrt(1e-3) * rng.standard_normal(g)) for g in shape
        ]
        self.factors = [gauss(a[:, None], a[:, None]) for a in self.axes]
        self.eigen = [np.linalg.eigh(K) for K in self.factors]
        roots = [V * np.sqrt(np.maximum(w, 0.0)) for w, V in self.eigen]
        field = self._multiply(roots, rng.standard_normal(self.n))
        self.y = field + np.sqrt(noise) * rng.standard_normal(self.n)
        self.test = np.column_stack([rng.uniform(-g / 4, g / 4, 100) for g in shape])
        self.cross = [gauss(t[:, None], a[:, None]) for t, a in zip(self.test.T, self.axes, strict=True)]

    def _multiply(self, matrices, v):
        out = v.reshape(self.shape)
        for axis, matrix in enumerate(matrices):
            out = np.moveaxis(np.tensordot(matrix, out, axes=(1, axis)), 0, axis)
        return out.ravel()

    def project(self, Q):
        """``k(x*, X) Q`` (100, P), a few test points at a time."""
        first = self.cross[0] @ np.ascontiguousarray(Q).reshape((self.shape[0], -1))
        out = first.reshape((len(first), -1))
        for K in self.cross[1:]:
            out = np.einsum("tg,tgr->tr", K, out.reshape((len(K), K.shape[1], -1)))
        return out

    def exact(self) -> Exact:
        """By the eigendecompositions of the factors."""
        values = reduce(np.multiply.outer, [np.maximum(w, 0.0) for w, _ in self.eigen]).ravel()
        total = values + self.noise
        rotated = self._multiply([V.T for _, V in self.eigen], self.y)
        sides = [K @ V for K, (_, V) in zip(self.cross, self.eigen, strict=True)]
        mean, var = np.empty(100), np.empty(100)
        for t in range(100):
            k = reduce(np.multiply.outer, [side[t] for side in sides]).ravel()
            mean[t], var[t] = k @ (rotated / total), 1.0 - (k / total) @ k
        evidence = -0.5 * (rotated @ (rotated / total) + np.log(2 * np.pi * total).sum())
        return Exact(mean, var, float(evidence))

    def blocks(self):
        """Rows of the grid and their targets."""
        for start in range(0, self.n, BLOCK):
            places = np.arange(start, min(start + BLOCK, self.n))
            index = np.unravel_index(places, self.shape)
            X = np.column_stack([axis[i] for axis, i in zip(self.axes, index, strict=True)])
            yield X, self.y[places]


def inducing_predictions(blocks, test, Z, n, noise, kernel=gauss, prior=1.0):
    """(mean, var, evidence) of VFE and of FITC with inducing inputs Z, in one pass over row blocks."""
    m = len(Z)
    L = linalg.cholesky(kernel(Z, Z) + 1e-8 * prior * np.eye(m), lower=True)
    gram = {"VFE": np.eye(m), "FITC": np.eye(m)}
    right = {"VFE": np.zeros(m), "FITC": np.zeros(m)}
    scalar = {"VFE": 0.0, "FITC": 0.0}  # y' D^-1 y + log|D| (+ trace / noise)
    for X, y in blocks():
        phi = linalg.solve_triangular(L, kernel(Z, X), lower=True)
        missed = np.maximum(prior - (phi**2).sum(0), 0.0)
        for name, D in (("VFE", np.full(len(y), noise)), ("FITC", noise + missed)):
            gram[name] += (phi / D) @ phi.T
            right[name] += phi @ (y / D)
            scalar[name] += y @ (y / D) + np.log(D).sum()
        scalar["VFE"] += missed.sum() / noise
    phi = linalg.solve_triangular(L, kernel(Z, test), lower=True)
    for name in gram:
        B = linalg.cho_factor(gram[name], lower=True)
        coef = linalg.cho_solve(B, right[name])
        var = prior - (phi**2).sum(0) + (phi * linalg.cho_solve(B, phi)).sum(0)
        evidence = scalar[name] - right[name] @ coef + 2 * np.log(np.diag(B[0])).sum()
        yield name, Exact(phi.T @ coef, var, -0.5 * (evidence + n * np.log(2 * np.pi)))


def inducing_errors(blocks, test, count, exact, n, noise, seed):
    """Relative errors with `count` random rows as inducing inputs."""
    rng = np.random.default_rng(seed)
    wanted, rows, start = np.sort(rng.permutation(n)[:count]), [], 0
    for X, _ in blocks():
        here = wanted[(wanted >= start) & (wanted < start + len(X))] - start
        rows.append(X[here])
        start += len(X)
    found = {}
    for name, got in inducing_predictions(blocks, test, np.vstack(rows), n, noise):
        for quantity, mine, true in zip(("mean", "variance", "evidence"), got, exact, strict=True):
            found[f"{quantity}, {name}"] = relative(np.asarray(mine), np.asarray(true))
    return found


def sound_curves(data, seed):
    """SMSE on the missing stretches by steps, with the published hyperparameters."""
    x, y = data["x_train"].ravel().astype(float), data["y_train"].ravel()
    test, target = data["x_test"].ravel().astype(float), data["y_test"].ravel()
    scale, noise, ell = 0.0714**2, 0.00846**2, 10.0
    grid, order = sgp.RegularGrid.from_points(x)
    column = scale * np.exp(-0.5 * (grid.axes[0] - grid.axes[0][0]) ** 2 / ell**2)
    operator = sgp.linops.Masked(sgp.linops.Toeplitz(column), grid.places)
    start = time.perf_counter()
    basis = krylov(operator, y[order], 100)
    spent = time.perf_counter() - start

    def kernel(a, b):
        return scale * gauss(a / ell, b / ell)

    z = np.vstack([
        kernel(part[:, None], x[order][:, None]) @ basis.Q
        for part in np.array_split(test, 20)
    ])  # fmt: skip
    rows = [
        [np.mean((target - m) ** 2) / np.var(target) for m in (mean, cg)]
        for mean, _, _, cg in prefixes(basis, z, len(y), noise, scale)
    ]
    found = dict(zip(("SMSE, KMCG", "SMSE, CG"), np.array(rows).T, strict=True))
    Z = np.linspace(x.min(), x.max(), 500)[:, None]

    def blocks():
        for begin in range(0, len(x), BLOCK):
            yield x[begin : begin + BLOCK, None], y[begin : begin + BLOCK]

    start = time.perf_counter()
    for name, got in inducing_predictions(blocks, test[:, None], Z, len(x), noise, kernel, scale):
        found[f"SMSE, {name}"] = np.mean((target - got.mean) ** 2) / np.var(target)
    other = time.perf_counter() - start
    print(f"\nsound: 100 steps {spent:.1f} s; VFE and FITC with 500 regular inputs {other:.1f} s")
    return found


def dense_errors(path, rows, steps, seed):
    """Curves on scattered rows, beside VFE and FITC at sqrt(n P) inducing inputs."""
    stored = np.load(path, allow_pickle=False)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(stored["y"]))[: rows + 500]
    X, y = stored["X"][order].astype(float), stored["y"][order].astype(float)
    X = (X - X[:rows].mean(0)) / np.maximum(X[:rows].std(0), 1e-12)
    y = (y - y[:rows].mean()) / y[:rows].std()
    with pm.Model():
        ell = pm.LogNormal("ell", 1.0, 1.0, shape=X.shape[1])
        eta, sigma = pm.LogNormal("eta", 0.0, 1.0), pm.LogNormal("sigma", -1.5, 1.0)
        gp = pm.gp.Marginal(cov_func=eta**2 * pm.gp.cov.ExpQuad(X.shape[1], ls=ell))
        best = sgp.subset_map(gp, X[:rows], y[:rows], sigma, random_seed=seed, progressbar=False)
    X, prior, noise = X / best["ell"], float(best["eta"]) ** 2, float(best["sigma"]) ** 2
    train, test, y = X[:rows], X[rows:], y[:rows]
    K, cross = prior * gauss(train, train), prior * gauss(test, train)
    factor = linalg.cho_factor(K + noise * np.eye(rows), lower=True)
    solved = linalg.cho_solve(factor, cross.T)
    evidence = -0.5 * y @ linalg.cho_solve(factor, y) - np.log(np.diag(factor[0])).sum()
    exact = Exact(solved.T @ y, prior - (cross * solved.T).sum(1),
                  float(evidence - 0.5 * rows * np.log(2 * np.pi)))  # fmt: skip
    basis = krylov(sgp.linops.Dense(K), y, min(steps, rows))
    found = krylov_errors(basis, cross @ basis.Q, exact, rows, noise, prior)
    inducing = {f"{q}, {n}": [] for n in ("VFE", "FITC") for q in ("mean", "variance", "evidence")}
    counts = np.unique(np.r_[1, np.arange(10, steps + 1, 10)])
    for p in counts:
        Z = train[rng.permutation(rows)[: min(rows, int(np.sqrt(rows * p)))]]
        for name, got in inducing_predictions(
            lambda: [(train, y)], test, Z, rows, noise, lambda a, b: prior * gauss(a, b), prior
        ):
            for quantity, mine, true in zip(("mean", "variance", "evidence"), got, exact, strict=True):
                inducing[f"{quantity}, {name}"].append(relative(np.asarray(mine), np.asarray(true)))
    found |= {k: np.interp(np.arange(1, steps + 1), counts, v) for k, v in inducing.items()}
    wins = {
        q: min(("KMCG", "VFE", "FITC"), key=lambda n: found[f"{q}, {n}"][-1])
        for q in ("mean", "variance", "evidence")
    }
    return found, wins


def peak_memory():
    """Peak resident memory of this process so far, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
