"""Seconds and bytes of a density with its gradient: operations counted by class, times a measured rate.

The orders are those of the cost tables of each method's page. ``tests/benchmarks/bench_classes.py``, a part
of ``make bench``, measures the rates and prints :data:`RATES`.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

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
# so many gradients under Gaussian noise: of counts, the mean over three classes. bench_likelihoods.py.
NEWTON = 2.4

# Seconds that calling a compiled density takes, whatever it computes; and from a model to its first
# gradient, with empty caches: bench_first_use.py. Bytes of a process with PyMC in it, without any data.
OVERHEAD, COMPILATION, PROCESS = 1.5e-5, 90.0, 0.6 * 2**30

# Passes over the rows in the training of SoftKI's points, and nodes of each column of GriefGP's grid.
EPOCHS, NODES = 30, 60

DEFAULTS = {"n_inducing": 200, "neighbors": 30, "block": 16, "probes": 8}


class Cost(NamedTuple):
    """Operations of a gradient, numbers held in memory, and operations once before sampling."""

    operations: float
    numbers: float
    once: float = 0.0


def cost_of(class_name: str, settings: dict, facts: Facts, by_mode: bool = False) -> Cost:
    """Cost of a class with its settings; `by_mode`: under another likelihood, integrated out."""
    if by_mode:  # one noise per row that is never the same: nothing is computed once
        kind, as_one = class_name, 1.0
        if class_name == "KMCGMarginal":  # features of a grid's axes, in operations of its own rate
            kind, settings = "GriefGP", {"rank": settings["n_iter"]}
            as_one = RATES[kind] / RATES[class_name]
        found = cost_of(kind, settings, replace(facts, is_normal=True, is_free=True))
        numbers = found.numbers
        if class_name == "VecchiaMarginal":  # the blocks that all steps to the mode share
            used = DEFAULTS | settings
            numbers += facts.n * (used["neighbors"] + used["block"]) ** 2 / used["block"]
        return found._replace(operations=NEWTON * as_one * found.operations, numbers=numbers)
    kind = class_name.removesuffix("Latent").removesuffix("Marginal")
    if kind in ("GriefGP", "SKIP", "SoftKI"):
        return _of_features(kind, settings, facts)
    return _of_rows(kind, DEFAULTS | settings, facts)


def _of_rows(kind, settings, facts) -> Cost:
    """Of what is exact, has neighbours or inducing points among the rows, or lies on a grid."""
    n, entry, m = facts.n, OBJECT if facts.is_dear else ENTRY, settings["n_inducing"]
    points = n * m * (4.0 * m + 2.0 * entry) + FACTOR * m**3  # their features, with the gradient
    match kind:
        case "Exact":  # a Cholesky factor and its inverse, five matrices
            return Cost(FACTOR * n**3 + 2.0 * entry * n**2, 5.0 * n**2)
        case "StateSpace":  # states from row to row and back; a process alone has code of its own
            s = facts.states
            row = MEMORY if s <= 3 else 120.0 * MEMORY
            return Cost(n * (row + 2.0 * SMALL * s**2), n * (6.0 + s) + 2.0 * n**0.5 * s**2)
        case "Vecchia" if settings["neighbors"] is None:  # latent, of inducing points alone
            return Cost(points, 4.0 * n * m)
        case "Vecchia":  # and blocks of rows given their neighbours
            k, g = settings["neighbors"], settings["block"]
            p = min(g + k, n)
            block = 3.0 * p**2 * m + 2.0 * SMALL * p**3 + (entry + 4.0 * MEMORY) * p**2
            search = 400.0 * MEMORY * n * max(math.log2(n), 1.0) + 2.0 * n * m**2
            features = points + _low_rank(n, m) if m else 0.0
            return Cost(n / g * block + features, 5.0 * n * (k + g + m), search)
        case "CholQR":  # a swap or two for each point come first
            search = n * m * (160.0 * m + 128.0 * entry)
            if facts.is_free:
                return Cost(points + _low_rank(n, m), 3.0 * n * m, search)
            return Cost((4.0 + FACTOR) * m**3, 4.0 * m**2, search)  # rows are summarised once
    grid, cells, sizes = facts.grid, facts.grid.size, np.array(facts.grid.shape, dtype=float)
    if facts.has_eigenbasis:  # decompositions of the axes, and products with them each way
        operations = 8.0 * (sizes**3).sum() + 4.0 * cells * (sizes.sum() + MEMORY)
        return Cost(operations, 6.0 * (cells + (sizes**2).sum()))
    steps = settings["n_iter"]  # from the targets and from each probe, forwards and backwards
    fast = [g > DENSE_AXIS and grid.spacing(axis) is not None for axis, g in enumerate(sizes)]
    product = 2.0 * cells * sizes[np.invert(fast)].sum() + 4.0 * n * steps + 8.0 * MEMORY * cells
    product += 8.0 * FOURIER * cells * np.log2(2 * sizes[fast]).sum()
    return Cost(2.0 * (1 + settings["probes"]) * steps * product, cells * (steps + 17.0))


def _of_features(kind, settings, facts) -> Cost:
    """Of features that are functions of the inputs, or between learned points."""
    n, d, r = facts.n, facts.d, settings.get("rank") or settings["inducing"]
    if kind == "SoftKI":  # rows summarised or in weights; training comes first
        rows = 0.0 if facts.is_normal else float(n * r)
        operations = (6.0 + FACTOR) * r**3 + 2.0 * ENTRY * r**2 + 4.0 * MEMORY * rows
        return Cost(operations, 8.0 * r**2 + rows, 40.0 * EPOCHS * n * r**2)
    if kind == "SKIP":  # a tree of roots, and r^2 features or a product with their coefficients
        tree = n * d * r * (4.0 * r**2 + (130.0 if facts.is_normal else 60.0) * MEMORY)
        if facts.is_normal:
            return Cost(tree + _low_rank(n, r**2), 4.0 * d * n * r + 2.0 * n * r**2)
        return Cost(4.0 * n * r * (r + MEMORY) + facts.is_free * tree, 4.0 * d * n * r)
    summary = n * r * (4.0 * r + d * MEMORY)  # once, where no more is used of the rows
    if "rotate" in settings:  # weights of orthogonal features
        return Cost(20.0 * MEMORY * r, r**2, summary + 2.0 * n * r**2)
    if settings.get("basis") == "frozen":
        operations = (8.0 + 2.0 * FACTOR) * r**3 + (NODES + 3.0 * d) * MEMORY * r**2
        return Cost(operations, 8.0 * r**2, summary)
    features = 3.0 * MEMORY * d * n * r + ENTRY * NODES * d * n
    latent = 4.0 * MEMORY * n * r + facts.is_free * features
    return Cost(features + _low_rank(n, r) if facts.is_normal else latent, 3.0 * n * r)


def _low_rank(n, r) -> float:
    """Density of given features, and its gradient: two products, a small factor."""
    return 4.0 * n * r**2 + FACTOR * r**3 + 6.0 * MEMORY * n * r


def seconds(class_name: str, cost: Cost) -> tuple[float, float]:
    """Seconds of a gradient, and seconds before the first draw."""
    rate = 1e-9 * RATES[class_name]
    return OVERHEAD + rate * cost.operations, COMPILATION + rate * cost.once


def held(cost: Cost, facts: Facts, cores: int, in_threads: bool) -> float:
    """Bytes of chains side by side, each a process with a copy of all, or of threads that share data."""
    processes = 1 if in_threads else cores
    shared = PROCESS + 24.0 * facts.n * facts.d
    return processes * shared + 8.0 * cores * cost.numbers
