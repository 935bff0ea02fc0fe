"""Row blocks of an array, some of its rows, and progress over what is done in turn."""

from collections.abc import Iterable, Iterator

import numpy as np
from pymc.progress_bar import create_simple_progress

BLOCK = 2048  # rows that are worked on at a time


def with_progress(items: Iterable, label: str | None, total: int, progressbar: bool) -> Iterator:
    """Each of some items in turn, with progress as they are done with."""
    progress = create_simple_progress(progressbar=progressbar)
    with progress:
        task = progress.add_task(label, completed=0, total=total)
        for item in items:
            yield item
            progress.advance(task)


def blocks(
    X: np.ndarray, size: int = BLOCK, label: str | None = None, progressbar: bool = True
) -> Iterator[tuple[slice, np.ndarray]]:
    """Row blocks of X, contiguous, with a progress bar when there are many."""
    n = X.shape[0]
    starts = range(0, n, size)
    for start in with_progress(starts, label, len(starts), progressbar and label and len(starts) > 20):
        yield slice(start, min(start + size, n)), np.ascontiguousarray(X[start : start + size])


def some_rows(X: np.ndarray, count: int) -> np.ndarray:
    """At most `count` rows of X (n, d), in their order.

    At random: rows that are evenly spaced may be those of a few columns of a grid, or of every other group.
    """
    n = len(X)
    return X[np.sort(np.random.default_rng(0).choice(n, min(n, count), replace=False))]
