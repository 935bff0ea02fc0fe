"""What a candidate loses against the exact Gaussian process, on a sample of rows."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from scipy import linalg

from pymc_scalable_gp.advice.candidates import Candidate
from pymc_scalable_gp.advice.sample import Sample
from pymc_scalable_gp.core.features.nystrom import JITTER
from pymc_scalable_gp.core.vecchia.neighbors import order_rows
from pymc_scalable_gp.methods.grief.gp import GriefGP
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid
from pymc_scalable_gp.methods.skip.gp import SKIPMarginal
from pymc_scalable_gp.utils.evaluate import evaluate

# Rows that SKIP's trees are built on: their directions are eigenvectors of a matrix of so many.
SKIP_ROWS = 1000

# Simulated targets over which KMCG's quadratic form is averaged.
DRAWS = 4


class Loss(NamedTuple):
    """Nats a thousand rows, and the share of the prior variance that features miss; NaN: not known."""

    nats: float = np.nan
    missed: float = np.nan


def expected_loss(candidate: Candidate, sample: Sample, stretch: Callable, n: int) -> Loss:
    """Kullback-Leibler divergence from the exact GP: what log density it loses on data of that GP.

    Parameters
    ----------
    candidate : Candidate
    sample : Sample
    stretch : callable
        Gives rows (q, d) of neighbouring cells of a grid, for :class:`KMCGMarginal`.
    n : int
        Rows of the data.

    Raises
    ------
    ValueError
        If the class refuses the kernel or the inputs, in its own words.
    """
    name, settings = candidate.class_name, candidate.settings
    if name == "ExactMarginal":
        return Loss(0.0, 0.0)
    if name.startswith("SoftKI"):
        return Loss()  # of points that are learned, which would take a training
    if name == "KMCGMarginal":
        return Loss(of_products(sample, stretch(), settings["n_iter"], settings["probes"], n), 0.0)
    if "n_inducing" in settings:
        phi = of_points(sample, settings["n_inducing"])
    else:
        phi = of_class(candidate, sample)
    prior = np.diag(sample.K)
    missed = float(np.maximum(1.0 - (phi**2).sum(axis=1) / prior, 0.0).mean())
    if settings.get("neighbors") is not None:
        try:
            A = neighbors_covariance(sample, phi, settings["neighbors"], settings["block"])
        except linalg.LinAlgError:  # the residual is singular to working precision
            return Loss()
        return Loss(divergence(sample, A), 0.0)
    return Loss(of_features(sample, phi, candidate.treatment), missed)


def of_points(sample: Sample, m: int) -> np.ndarray:
    """Features (p, m) of inducing points, as of :class:`NystromMap`."""
    Z = sample.points[:m]
    if not len(Z):
        return np.zeros((len(sample.X), 0))
    K = sample.kernel(Z, Z)
    K += JITTER * np.diag(K).mean() * np.eye(len(Z))
    return linalg.solve_triangular(
        linalg.cholesky(K, lower=True), sample.kernel(Z, sample.X), lower=True
    ).T


def of_class(candidate: Candidate, sample: Sample) -> np.ndarray:
    """Features (p, r) of GriefGP, or of either SKIP."""
    key = candidate.class_name, candidate.settings["rank"]
    if key not in sample.features:
        grief = candidate.class_name == "GriefGP"
        kind, rows = (GriefGP, len(sample.base)) if grief else (SKIPMarginal, SKIP_ROWS)
        with sample.context(), warnings.catch_warnings():
            # What is missed is a column of the table.
            warnings.simplefilter("ignore", UserWarning)
            gp = kind(cov_func=sample.cov_func, rank=candidate.settings["rank"])
            gp.build(sample.base[:rows], point=sample.point)
            (found,) = evaluate([gp.features(pt.constant(sample.X))], sample.point)
        sample.features[key] = found
    return sample.features[key]


def divergence(sample: Sample, A: np.ndarray) -> float:
    """Of ``N(0, A)`` from ``N(0, K + noise I)``, in nats a thousand rows."""
    exact = sample.K + sample.noise * np.eye(len(A))
    try:
        factor, own = (linalg.cholesky(M, lower=True) for M in (A, exact))
    except linalg.LinAlgError:  # not positive definite to working precision
        return np.nan
    white = linalg.solve_triangular(factor, own, lower=True)
    half = np.log(np.diag(factor)).sum() - np.log(np.diag(own)).sum()
    return float(1000.0 / len(A) * (0.5 * ((white**2).sum() - len(A)) + half))


def of_features(sample: Sample, phi: np.ndarray, approx: str) -> float:
    """Of features (p, r) with "DTC", "FITC" or "VFE"."""
    p = len(phi)
    left = np.maximum(np.diag(sample.K) - (phi**2).sum(axis=1), 0.0)
    A = phi @ phi.T + np.diag(sample.noise + (left if approx == "FITC" else np.zeros(p)))
    penalty = 500.0 / p * left.sum() / sample.noise if approx == "VFE" else 0.0
    return divergence(sample, A) + penalty


def neighbors_covariance(sample: Sample, phi: np.ndarray, k: int, g: int) -> np.ndarray:
    """Covariance that features (p, m), blocks of g rows and k neighbours stand for."""
    R = sample.K - phi @ phi.T + sample.noise * np.eye(len(phi))
    found = order_rows(sample.X, sample.metric, g, k, progressbar=False)
    order = found.order
    R, p = R[np.ix_(order, order)], len(order)
    root = np.zeros((p, p))  # lower triangular, and a block's rows are regressions on earlier rows
    for b, near in enumerate(found.neighbors):
        own, near = np.arange(b * found.block, min((b + 1) * found.block, p)), near[near >= 0]
        A = linalg.solve(R[np.ix_(near, near)], R[np.ix_(near, own)], assume_a="pos").T
        L = linalg.cholesky(R[np.ix_(own, own)] - A @ R[np.ix_(near, own)], lower=True)
        root[own] = A @ root[near]
        root[np.ix_(own, own)] = L
    out = np.empty((p, p))
    out[np.ix_(order, order)] = root @ root.T
    return out + phi @ phi.T


def grid_stretch(grid: RegularGrid, count: int) -> np.ndarray:
    """About `count` observed cells (q, d) of a grid that lie side by side, in its middle."""
    side = max(int(count ** (1.0 / len(grid.axes))), 1)
    middle = [(len(axis) - min(side, len(axis))) // 2 for axis in grid.axes]
    axes = [axis[m : m + side] for axis, m in zip(grid.axes, middle, strict=True)]
    inside = tuple(slice(m, m + side) for m in middle)
    observed = None if grid.observed is None else grid.observed[inside]
    if observed is not None and not observed.any():
        observed = None
    return RegularGrid(axes, observed).points


def of_products(sample: Sample, X: np.ndarray, steps: int, probes: int, n: int) -> float:
    """KMCG's, nats a thousand rows: its quadratic form after so many steps, and its log determinant.

    The form's excess is the same share on any number of rows, since the spectrum of a stationary kernel on
    a grid is; the determinant's standard error grows with the root of that number.
    """
    K = sample.kernel(X, X)
    q, K = len(X), 0.5 * (K + K.T)
    values, vectors = np.linalg.eigh(K)
    values = np.maximum(values, 0.0) + sample.noise
    rng = np.random.default_rng(0)
    excess = 0.0
    for _ in range(DRAWS):
        y = vectors @ (np.sqrt(values) * rng.standard_normal(q))
        exact = ((vectors.T @ y) ** 2 / values).sum()
        excess += max(_krylov_form(K, y, min(steps, q), sample.noise) - exact, 0.0) / DRAWS
    log = (vectors * np.log(values)) @ vectors.T
    spread = np.sqrt(2.0 / probes * (np.square(log).sum() - np.square(np.diag(log)).sum()))
    return float(500.0 * (excess / q + spread / np.sqrt(q * n)))


def _krylov_form(K, y, steps, noise) -> float:
    """``y'(k~ + noise I)^{-1} y`` with the features of so many Lanczos steps from y."""
    Q, beta = np.zeros((len(y), steps)), 0.0
    vector = y / np.linalg.norm(y)
    for j in range(steps):
        Q[:, j] = vector
        vector = K @ vector
        for _ in range(2):  # once leaves rounding errors of the first
            vector -= Q[:, : j + 1] @ (Q[:, : j + 1].T @ vector)
        beta = np.linalg.norm(vector)
        if beta < 1e-10 * np.trace(K):
            Q, beta = Q[:, : j + 1], 0.0
            break
        vector /= beta
    # In the basis [Q, q] of the next vector q the features' covariance is B T^-1 B', B = [T; beta e'].
    T = Q.T @ K @ Q
    T += 1e-12 * np.trace(T) * np.eye(len(T))
    B = np.vstack([T, beta * np.eye(len(T))[-1]])
    inner = B @ linalg.cho_solve(linalg.cho_factor(T), B.T) + noise * np.eye(len(B))
    first = np.eye(len(B))[0]
    return float(y @ y * linalg.solve(inner, first, assume_a="pos")[0])
