"""Rows of a training, batch by batch: in memory, or streamed through a buffer that is shuffled."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pymc_scalable_gp.core.data.inputs import check_inputs, check_target
from pymc_scalable_gp.core.rows.sources import Source, open_source
from pymc_scalable_gp.methods.softki.points import KMEANS_ROWS

# Rows that are shuffled together where they are streamed.
BUFFER = 65_536


class Batch(NamedTuple):
    """Inputs (b, d), targets (b,) and their row numbers."""

    X: np.ndarray
    y: np.ndarray
    rows: np.ndarray


class MemoryRows:
    """All rows as arrays; a share of them is held out."""

    def __init__(self, X, y, validation: float, rng):
        self.sample = check_inputs(X).value
        self._y = check_target(y, self.sample.shape[0]).value
        self.size, self.variance = len(self._y), float(self._y.var())
        order = rng.permutation(self.size)
        held = min(round(validation * self.size), self.size - 1)
        self._train, self._held = np.sort(order[held:]), np.sort(order[:held])

    @property
    def count(self) -> int:
        """Number of rows for training."""
        return len(self._train)

    @property
    def held(self) -> Batch:
        """Rows for validation."""
        return self._of(self._held)

    def judges(self, most: int) -> Batch:
        """At most about so many rows for training, evenly spaced."""
        return self._of(self._train[:: -(-len(self._train) // most)])

    def _of(self, rows):
        return Batch(self.sample[rows], self._y[rows], rows)

    def batches(self, size: int, rng) -> Iterator[Batch]:
        """All rows for training in a new order."""
        order = self._train[rng.permutation(len(self._train))]
        for start in range(0, len(order), size):
            yield self._of(order[start : start + size])


class StreamedRows:
    """Rows that are read anew in each epoch; a random sample of them stays in memory.

    The sample starts the points, is held out for validation (and left out of the batches then), and
    gives the predictions that are compared.
    """

    def __init__(self, source: Source, validation: float, rng):
        self._source = source
        found, self.size, self.variance = _reservoir(source, KMEANS_ROWS, rng)
        order = rng.permutation(len(found.y))
        held = np.sort(order[: min(round(validation * len(order)), len(order) - 1)])
        rest = np.sort(order[len(held) :])
        self.sample = found.X
        self.held = Batch(found.X[held], found.y[held], found.rows[held])
        self._rest = Batch(found.X[rest], found.y[rest], found.rows[rest])
        self._skipped = np.sort(self.held.rows)

    @property
    def count(self) -> int:
        """Number of rows for training."""
        return self.size - len(self._skipped)

    def judges(self, most: int) -> Batch:
        """At most about so many rows for training, of the sample."""
        step = -(-len(self._rest.y) // most)
        return Batch(*(part[::step] for part in self._rest))

    def batches(self, size: int, rng) -> Iterator[Batch]:
        """All rows for training, in an order that is new within each buffer."""
        held, kept = 0, []
        for block in self._source.blocks():
            rows = np.arange(block.start, block.start + len(block.y))
            keep = ~np.isin(rows, self._skipped, assume_unique=True)
            kept.append(Batch(block.X[keep], block.y[keep], rows[keep]))
            held += len(kept[-1].y)
            if held >= max(BUFFER, size):
                rest = yield from _shuffled(kept, size, rng, last=False)
                held, kept = len(rest.y), [rest]
        yield from _shuffled(kept, size, rng, last=True)


def _shuffled(kept, size, rng, last):
    """Batches of the rows held so far; what makes no whole batch is returned, or comes last."""
    whole = Batch(*(np.concatenate(parts) for parts in zip(*kept, strict=True)))
    order = rng.permutation(len(whole.y))
    full = len(order) if last else len(order) // size * size
    for start in range(0, full, size):
        rows = order[start : min(start + size, full)]
        yield Batch(*(part[rows] for part in whole))
    return Batch(*(part[order[full:]] for part in whole))


def _reservoir(source: Source, most: int, rng) -> tuple[Batch, int, float]:
    """A random sample of at most so many rows, the number of all, and the variance of y, in one pass."""
    sample, seen = None, 0
    total, squares, shift = 0.0, 0.0, None
    for X, y, rows in ((b.X, b.y, np.arange(b.start, b.start + len(b.y))) for b in source.blocks()):
        shift = y[0] if shift is None else shift  # of all sums: no digits are lost to an offset
        total, squares = total + (y - shift).sum(), squares + ((y - shift) ** 2).sum()
        if sample is None:
            sample = Batch(np.empty((most, X.shape[1])), np.empty(most), np.empty(most, int))
        # Each of the first rows has its place; row i takes a random one among i + 1, if there is such.
        places = np.where(rows < most, rows, (rng.random(len(rows)) * (rows + 1)).astype(int))
        for part, values in zip(sample, (X, y, rows), strict=True):
            part[places[places < most]] = values[places < most]
        seen += len(y)
    if sample is None:
        raise ValueError(f"{source.label}: the source has no rows")
    kept = Batch(*(part[: min(seen, most)] for part in sample))
    return kept, seen, squares / seen - (total / seen) ** 2


def training_rows(X, y, validation: float, rng):
    """Rows in memory as they are; memmaps, zarr, dask, Parquet and iterables streamed.

    Raises
    ------
    TypeError, ValueError
        For a bad share of validation rows, bad data, and an iterator, which can be read but once.
    """
    if not 0.0 <= validation < 1.0:
        raise ValueError(f"validation must be a share of the rows in [0, 1), got {validation}")
    chunked = getattr(X, "chunks", None) is not None
    streamed = isinstance(X, str | Path | np.memmap) or chunked or (y is None and X is not None)
    if not streamed:
        return MemoryRows(X, y, validation, rng)
    if hasattr(X, "__next__"):
        raise TypeError(
            "an iterator can be read but once, and each epoch reads all rows: give a list of pairs "
            "(X, y), or an object whose __iter__ begins anew"
        )
    return StreamedRows(open_source(X, y), validation, rng)
