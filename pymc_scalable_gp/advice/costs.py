"""Seconds and bytes of a density with its gradient: operations counted by class, times a measured rate.

The orders are those of the cost tables of each method's page. ``tests/benchmarks/bench_classes.py``, a part
of ``make bench``, measures the rates and prints :data:`RATES`.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from joblib import cpu_count

from pymc_scalable_gp.advice.facts import Facts
from pymc_scalable_gp.methods.kmcg.regular_grid import DENSE_AXIS

# Seconds for 1e9 operations on one core of an AMD EPYC: bench_classes.py, 2026-11-23.
RATES = {
    "ExactMarginal": 0.011, "VecchiaMarginal": 0.020, "VecchiaLatent": 0.010, "GriefGP": 0.0081,
    "SKIPMarginal": 0.0087, "SKIPLatent": 0.0048, "SoftKIMarginal": 0.028, "SoftKILatent": 0.0038,
    "KMCGMarginal": 0.031, "CholQRMarginal": 0.015, "StateSpaceMarginal": 0.3,
}  # fmt: skip

# How many operations of a matrix product each of these takes the time of: an operation of a large Cholesky
# factor, and of one of some forty rows; a number read or written; a point of a Fourier transform, times
# log2 of the number of points; an entry of a kernel matrix, and one that Python computes from two objects.
FACTOR, SMALL, MEMORY, FOURIER, ENTRY, OBJECT = 2.0, 17.0, 100.0, 100.0, 1000.0, 1e6

# A gradient under a likelihood that is not normal, with steps to the mode and an adjoint, takes the time of
# so many gradients under Gaussian noise. bench_likelihoods.py.
NEWTON = 7.0

# Seconds that calling a compiled density takes, whatever it computes.
OVERHEAD = 1.5e-5

# Seconds from a model to its first gradient, with empty caches: bench_first_use.py.
COMPILATION = 90.0

# Bytes of a process with PyMC in it, before it has any data.
PROCESS = 0.6 * 2**30

# Passes over the rows in the training of SoftKI's points, and nodes of each column of GriefGP's grid.
EPOCHS, NODES = 30, 60


class Cost(NamedTuple):
    """Operations of a gradient, numbers held in memory, and operations once before sampling."""

    operations: float
    numbers: float
    once: float = 0.0


def cost_of(class_name: str, settings: dict, facts: Facts, by_mode: bool = False) -> Cost:
    """Cost of a class with its settings; `by_mode`: under another likelihood, integrated out."""
    if not by_mode:
        return _COSTS[class_name](facts, **settings)
    # The noise of the pseudo-targets is one per row and never the same: nothing is computed once.
    found = _COSTS[class_name](replace(facts, is_normal=True, is_free=True), **settings)
    return found._replace(operations=NEWTON * found.operations)


def seconds(class_name: str, cost: Cost) -> tuple[float, float]:
    """Seconds of a gradient, and seconds before the first draw."""
    rate = 1e-9 * RATES[class_name]
    return OVERHEAD + rate * cost.operations, COMPILATION + rate * cost.once


def held(cost: Cost, facts: Facts, chains: int) -> float:
    """Bytes of all chains that run side by side, each with its own copy."""
    return chains * (PROCESS + 8.0 * (cost.numbers + 3.0 * facts.n * facts.d))


def chains_at_once() -> int:
    """One chain per core that this process may use, and at most four."""
    return min(4, cpu_count())


def _low_rank(n, r) -> float:
    """Density of given features, and its gradient: two products, a small factor."""
    return 4.0 * n * r**2 + FACTOR * r**3 + 6.0 * MEMORY * n * r


def _entry(facts) -> float:
    return OBJECT if facts.is_dear else ENTRY


def _inducing(facts, m) -> float:
    """Features of inducing points with their gradient."""
    return facts.n * m * (4.0 * m + 2.0 * _entry(facts)) + FACTOR * m**3


def _exact(facts) -> Cost:
    """A Cholesky factor and its inverse, five matrices."""
    n = facts.n
    return Cost(FACTOR * n**3 + 2.0 * _entry(facts) * n**2, 5.0 * n**2)


def _statespace(facts) -> Cost:
    """Covariances of the states from row to row and back; a process alone has code of its own."""
    n, s = facts.n, facts.states
    row = MEMORY if s <= 3 else 120.0 * MEMORY
    return Cost(n * (row + 2.0 * SMALL * s**2), n * (6.0 + s) + 2.0 * n**0.5 * s**2)


def _vecchia(facts, n_inducing=200, neighbors=30, block=16) -> Cost:
    """Inducing points, and blocks of rows given their neighbours."""
    n, m, k, g = facts.n, n_inducing, neighbors, block
    if k is None:  # latent, of inducing points alone
        return Cost(_inducing(facts, m), 4.0 * n * m)
    p = min(g + k, n)
    block = 3.0 * p**2 * m + 2.0 * SMALL * p**3 + (_entry(facts) + 4.0 * MEMORY) * p**2
    features = _inducing(facts, m) + _low_rank(n, m) if m else 0.0
    search = 400.0 * MEMORY * n * max(math.log2(n), 1.0) + 2.0 * n * m**2
    return Cost(n / g * block + features, 5.0 * n * (k + g + m), search)


def _grief(facts, rank, basis="free", rotate=False) -> Cost:
    """Kernels between rows and nodes, products of d factors for each feature, and their density."""
    n, d, r = facts.n, facts.d, rank
    summary = n * r * (4.0 * r + d * MEMORY)
    if rotate:  # weights of orthogonal features
        return Cost(20.0 * MEMORY * r, r**2, summary + 2.0 * n * r**2)
    if basis == "frozen":  # nothing of size n: the rows are summarised once
        operations = (8.0 + 2.0 * FACTOR) * r**3 + (NODES + 3.0 * d) * MEMORY * r**2
        return Cost(operations, 8.0 * r**2, summary)
    features = 3.0 * MEMORY * d * n * r + ENTRY * NODES * d * n
    if facts.is_normal:
        return Cost(features + _low_rank(n, r), 3.0 * n * r)
    return Cost(4.0 * MEMORY * n * r + facts.is_free * features, 3.0 * n * r)


def _skip(facts, rank) -> Cost:
    """A tree of roots, and the density of r^2 features, or a product with their coefficients."""
    n, d, r = facts.n, facts.d, rank
    if facts.is_normal:
        tree = n * d * r * (4.0 * r**2 + 130.0 * MEMORY)
        return Cost(tree + _low_rank(n, r**2), 4.0 * d * n * r + 2.0 * n * r**2)
    tree = facts.is_free * n * d * r * (4.0 * r**2 + 60.0 * MEMORY)
    return Cost(4.0 * n * r * (r + MEMORY) + tree, 4.0 * d * n * r)


def _softki(facts, inducing) -> Cost:
    """A kernel between the points, with rows summarised or in weights; training comes first."""
    n, m = facts.n, inducing
    rows = 0.0 if facts.is_normal else float(n * m)
    operations = (6.0 + FACTOR) * m**3 + 2.0 * ENTRY * m**2 + 4.0 * MEMORY * rows
    return Cost(operations, 8.0 * m**2 + rows, 40.0 * EPOCHS * n * m**2)


def _kmcg(facts, n_iter=None, probes=8) -> Cost:
    """Steps of Lanczos from the targets and from each probe, forwards and backwards.

    Decompositions of the axes' kernels, and a product with all of them each way, where these are exact.
    """
    grid = facts.grid
    sizes, cells = np.array(grid.shape, dtype=float), grid.size
    if facts.has_eigenbasis:
        operations = 8.0 * (sizes**3).sum() + 4.0 * cells * (sizes.sum() + MEMORY)
        return Cost(operations, 6.0 * (cells + (sizes**2).sum()))
    even = np.array([grid.spacing(axis) is not None for axis in range(len(sizes))])
    fast = even & (sizes > DENSE_AXIS)
    product = 2.0 * cells * sizes[~fast].sum() + 4.0 * facts.n * n_iter + 8.0 * MEMORY * cells
    product += 8.0 * FOURIER * cells * np.log2(2 * sizes[fast]).sum()
    return Cost(2.0 * (1 + probes) * n_iter * product, cells * (n_iter + 17.0))


def _cholqr(facts, n_inducing, approx="VFE") -> Cost:
    """Inducing points among the rows; a swap or two for each comes first."""
    n, m = facts.n, n_inducing
    search = n * m * (160.0 * m + 128.0 * _entry(facts))
    if facts.is_free:
        return Cost(_inducing(facts, m) + _low_rank(n, m), 3.0 * n * m, search)
    return Cost((4.0 + FACTOR) * m**3, 4.0 * m**2, search)  # rows are summarised once


_COSTS = {
    "ExactMarginal": _exact, "StateSpaceMarginal": _statespace, "VecchiaMarginal": _vecchia,
    "VecchiaLatent": _vecchia,
    "GriefGP": _grief, "SKIPMarginal": _skip, "SKIPLatent": _skip, "SoftKIMarginal": _softki,
    "SoftKILatent": _softki, "KMCGMarginal": _kmcg, "CholQRMarginal": _cholqr,
}  # fmt: skip
