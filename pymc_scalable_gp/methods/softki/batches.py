"""Rows of a training, batch by batch: in memory, or streamed through a shuffled buffer."""

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

    def at(self, places) -> "Batch":
        """Some of the rows, by their places in the batch."""
        return Batch(*(part[places] for part in self))


class MemoryRows:
    """Rows in memory, a share of which is held out for validation.

    `size` and `variance` (of the targets) are those of all rows, of which the `sample` is a part where they
    are streamed. `count` is the number of rows for training.
    """

    def __init__(self, sample: Batch, size: int, variance: float, validation: float, rng):
        self.sample, self.size, self.variance = sample, size, variance
        order = rng.permutation(len(sample.y))
        held = min(round(validation * len(order)), len(order) - 1)
        self.held, self._rest = sample.at(np.sort(order[:held])), np.sort(order[held:])
        self.count = size - held

    def judges(self, most: int) -> Batch:
        """At most `most` rows of the sample for training, evenly spaced: predictions are made from them."""
        return self.sample.at(self._rest[:: -(-len(self._rest) // most)])

    def batches(self, size: int, rng) -> Iterator[Batch]:
        """All rows for training in a new order."""
        order = rng.permutation(self._rest)
        for start in range(0, len(order), size):
            yield self.sample.at(order[start : start + size])


class StreamedRows(MemoryRows):
    """Rows that are read again in each epoch; a random sample of them stays in memory.

    The points start from the sample, validation rows are held out of it (and left out of the batches), and
    the predictions that are compared are made from the rest of it.
    """

    def __init__(self, source: Source, validation: float, rng):
        super().__init__(*_reservoir(source, KMEANS_ROWS, rng), validation, rng)
        self._source = source

    def batches(self, size: int, rng) -> Iterator[Batch]:
        """All rows for training, in an order that is new within each buffer."""
        buffered, parts = 0, []
        for block in self._source.blocks():
            rows = np.arange(block.start, block.start + len(block.y))
            keep = ~np.isin(rows, self.held.rows, assume_unique=True)
            parts.append(Batch(block.X, block.y, rows).at(keep))
            buffered += len(parts[-1].y)
            if buffered >= max(BUFFER, size):
                rest = yield from _shuffled(parts, size, rng, last=False)
                buffered, parts = len(rest.y), [rest]
        yield from _shuffled(parts, size, rng, last=True)


def _shuffled(parts, size, rng, last):
    """Batches of the buffered rows; rows that fill no whole batch are returned, or are the last batch."""
    whole = Batch(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    order = rng.permutation(len(whole.y))
    full = len(order) if last else len(order) // size * size
    for start in range(0, full, size):
        yield whole.at(order[start : min(start + size, full)])
    return whole.at(order[full:])


def _reservoir(source: Source, most: int, rng) -> tuple[Batch, int, float]:
    """A random sample of at most `most` rows, the number of all, and the variance of y, in one pass."""
    sample, seen = None, 0
    total, squares, shift = 0.0, 0.0, None
    for start, X, y, _ in source.blocks():
        rows = np.arange(start, start + len(y))
        shift = y[0] if shift is None else shift  # of all sums: no digits are lost to an offset
        total, squares = total + (y - shift).sum(), squares + ((y - shift) ** 2).sum()
        if sample is None:
            sample = Batch(np.empty((most, X.shape[1])), np.empty(most), np.empty(most, int))
        # The first rows take places in turn; a later row i a random one of i + 1, if the sample has it.
        places = np.where(rows < most, rows, (rng.random(len(rows)) * (rows + 1)).astype(int))
        for part, values in zip(sample, (X, y, rows), strict=True):
            part[places[places < most]] = values[places < most]
        seen += len(y)
    if sample is None:
        raise ValueError(f"{source.label}: the source has no rows")
    return sample.at(slice(min(seen, most))), seen, squares / seen - (total / seen) ** 2


def training_rows(X, y, validation: float, rng) -> MemoryRows:
    """Arrays in memory; memmaps, zarr, dask, Parquet and iterables streamed; an error for an iterator."""
    if not 0.0 <= validation < 1.0:
        raise ValueError(f"validation must be a share of the rows in [0, 1), got {validation}")
    chunked = getattr(X, "chunks", None) is not None
    if not (isinstance(X, str | Path | np.memmap) or chunked or (y is None and X is not None)):
        given, X = X, check_inputs(X).value
        y = check_target(y, len(X), given).value
        rows = Batch(X, y, np.arange(len(y)))
        return MemoryRows(rows, len(y), float(y.var()), validation, rng)
    if hasattr(X, "__next__"):
        raise TypeError(
            "an iterator can be read but once, and each epoch reads all rows: give a list of pairs "
            "(X, y), or an object whose __iter__ starts from the beginning"
        )
    return StreamedRows(open_source(X, y), validation, rng)
