"""Subsamples of rows that lie as all rows do."""

import numpy as np


def subsamples(X: np.ndarray, first: int, second: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of two samples without a common row, each spread over the inputs X (n, d).

    Rows are parted into ``first + second`` cells of nearly equal numbers, at medians of the column that is
    widest there, in units of its standard deviation. One row is drawn from each cell, and in the
    order of the cells, neighbours beside each other, the second sample takes rows at equal distances.

    With fewer rows than both need the second has what the first leaves, or, if that is nothing, the same.
    """
    n = len(X)
    if n <= first:
        return np.arange(n), np.arange(n)
    spread = X.std(axis=0)
    cells = _cells(X / np.where(spread > 0.0, spread, 1.0), min(first + second, n))
    rows = np.array([rng.choice(cell) for cell in cells])
    places = np.linspace(0, len(rows) - 1, len(rows) - first).round().astype(int)
    other = np.zeros(len(rows), dtype=bool)
    other[places] = True
    return np.sort(rows[~other]), np.sort(rows[other])


def _cells(X, count: int) -> list[np.ndarray]:
    """Rows of each of so many cells."""
    parts, found = [(np.arange(len(X)), count)], []
    while parts:
        rows, k = parts.pop()
        if k == 1:
            found.append(rows)
            continue
        inside = X[rows]
        column = inside[:, np.argmax(np.ptp(inside, axis=0))]
        left = k // 2
        place = round(len(rows) * left / k)
        order = np.argpartition(column, place)
        parts += [(rows[order[place:]], k - left), (rows[order[:place]], left)]
    return found
