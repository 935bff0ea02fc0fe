"""Row blocks of an array, and rows evenly spaced through it."""

from collections.abc import Iterator

import numpy as np
from pymc.progress_bar import create_simple_progress

BLOCK = 2048  # rows that are worked on at a time


def blocks(
    X: np.ndarray, size: int = BLOCK, label: str | None = None, progressbar: bool = True
) -> Iterator[tuple[slice, np.ndarray]]:
    """Row blocks of X, contiguous, with a progress bar when there are many."""
    n = X.shape[0]
    starts = range(0, n, size)
    progress = create_simple_progress(progressbar=progressbar and label and len(starts) > 20)
    with progress:
        task = progress.add_task(label, completed=0, total=len(starts))
        for start in starts:
            yield slice(start, min(start + size, n)), np.ascontiguousarray(X[start : start + size])
            progress.advance(task)


def evenly(X: np.ndarray, count: int) -> np.ndarray:
    """At most `count` rows, evenly spaced through X (n, d)."""
    n = len(X)
    return X[np.unique(np.linspace(0, n - 1, min(n, count)).astype(int))]
