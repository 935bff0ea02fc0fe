"""Grid nodes of the input columns, and the leading products of their eigenvalues."""

from collections.abc import Sequence
from numbers import Integral

import numpy as np

# Share of a column's prior variance that may lie between the nodes chosen by default. An ExpQuad at
# 0.5, 0.75, 1 lengthscales between nodes leaves 6e-10, 4e-5, 3e-3 there, Matern-5/2 2e-3, 1e-2, 4e-2.
UNRESOLVED = 1e-5


def grid_nodes(x: np.ndarray, size: int | np.ndarray) -> np.ndarray:
    """At most `size` nodes spread over the values of one column, or the nodes given.

    A column with no more than `size` distinct values uses those. Otherwise node k is the mean of the
    k-th of `size` evenly spaced points and of the k-th quantile: of a column with heavy tails, even nodes
    alone leave the bulk between two nodes, and quantiles alone leave the tails uncovered.
    """
    if not isinstance(size, Integral):
        return np.asarray(size, dtype=float)
    values = np.unique(x)
    if values.size <= size:
        return values
    even = np.linspace(values[0], values[-1], size)
    return np.unique(0.5 * (even + np.quantile(x, np.linspace(0.0, 1.0, size))))


def node_ladder(x: np.ndarray, d: int) -> list[np.ndarray]:
    """Sets of nodes of one column of `d`, from few to many: 100 to 200 of one column, 10 to 20 of many."""
    low = min(max(100 // d, 10), 100)
    high = 200 if d <= 2 else min(max(300 // d, 20), 100)
    sizes = [low]
    while sizes[-1] < high:
        sizes.append(min(3 * sizes[-1] // 2, high))
    ladder = [grid_nodes(x, size) for size in sizes]
    distinct = np.unique(x).size
    return ladder[: 1 + sum(size < distinct for size in sizes[:-1])]


def least_resolving(gram: np.ndarray, sizes: list[int]) -> int:
    """Place of the first set of nodes that resolves the kernel at the probe rows; else the last.

    `gram` is the 1-D kernel matrix of p probe rows, followed by sets of nodes, `sizes` their numbers. The
    share of prior variance between nodes U is the mean of ``k(x, x) - k(x, U) k(U, U)^-1 k(U, x)`` over
    that of ``k(x, x)``.
    """
    start = p = len(gram) - sum(sizes)
    prior = np.diag(gram)[:p]
    for place, size in enumerate(sizes[:-1]):
        nodes = slice(start, start + size)
        inner, cross = gram[nodes, nodes], gram[nodes, :p]
        values, vectors = np.linalg.eigh(inner)
        keep = values > 1e-12 * values[-1]
        held = np.sum((vectors[:, keep].T @ cross) ** 2 / values[keep, None], axis=0)
        if np.mean(prior - held) <= UNRESOLVED * np.mean(prior):
            return place
        start += size
    return len(sizes) - 1


def check_grid(grid, d: int) -> list:
    """A node count, a node array or None for each of `d` columns, from the user's ``grid=``."""
    if grid is None or isinstance(grid, Integral):
        grid = [grid] * d
    if not isinstance(grid, Sequence | np.ndarray) or isinstance(grid, str):
        raise TypeError(
            "grid must be an int, one int per dimension, or a list of 1-D node arrays, or None, got "
            f"{grid!r}"
        )
    if len(grid) != d:
        raise ValueError(f"grid has {len(grid)} entries, but X has {d} columns: give one per column")
    return [_check_entry(entry, i) for i, entry in enumerate(grid)]


def _check_entry(entry, i):
    if entry is None:
        return None
    if isinstance(entry, Integral):
        if entry < 1:
            raise ValueError(f"grid[{i}] is {entry}: a dimension needs at least 1 node")
        return int(entry)
    nodes = np.asarray(entry, dtype=float)
    if nodes.ndim != 1 or nodes.size == 0 or not np.isfinite(nodes).all():
        raise ValueError(
            f"grid[{i}] must be an int or a non-empty 1-D array of finite nodes, got shape {nodes.shape}"
        )
    steps = np.diff(nodes)
    if (steps <= 0).any():
        k = int(np.argmax(steps <= 0))
        wrong = "twice the same node" if steps[k] == 0 else "nodes in decreasing order"
        raise ValueError(
            f"grid[{i}] has {wrong}, {nodes[k]:.6g} before {nodes[k + 1]:.6g}: give increasing nodes, "
            f"for instance np.unique(grid[{i}])"
        )
    return nodes
