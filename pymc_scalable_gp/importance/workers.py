"""Densities side by side: in threads of this process, or on the workers of a Dask cluster."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from threading import Lock

import cloudpickle
import numpy as np

from pymc_scalable_gp.utils.threads import one_blas_thread

PIECES = 4  # tasks for each worker: whoever is done early takes another


# Graphs of a worker, unpickled once, so that each compiles once per process. It has threads of its own.
_graphs, _turn = lru_cache(maxsize=2)(cloudpickle.loads), Lock()


def _evaluate(payload: bytes, kind: str, points: np.ndarray) -> np.ndarray:
    """Rows at `points` in a worker."""
    points = np.array(points)  # what came over a network need not be aligned in memory
    with _turn:
        graphs = _graphs(payload)
    with nullcontext() if graphs.by_ops else _turn:
        return graphs.rows(kind, points)


@contextmanager
def side_by_side(graphs, cores: int = 1, client=None):
    """A function ``where(kind, points)`` for `Density`, or None for this thread alone.

    Threads share the machine code of the `graphs`, and each has one BLAS thread meanwhile. The workers of
    a `client`, a distributed.Client, take precedence: they get the graphs pickled by cloudpickle, and
    compile them.
    """
    if client is not None:
        workers = max(len(client.scheduler_info()["workers"]), 1)
        payload = client.scatter(cloudpickle.dumps(graphs), broadcast=True, hash=False)

        def on_cluster(kind, pieces):
            same = [payload] * len(pieces), [kind] * len(pieces)
            return client.gather(client.map(_evaluate, *same, pieces, pure=False))

        yield _by_pieces(on_cluster, workers)
    elif cores > 1:
        pool = ThreadPoolExecutor(cores)

        def in_threads(kind, pieces):
            with one_blas_thread():
                return list(pool.map(graphs.rows, [kind] * len(pieces), pieces))

        try:
            yield _by_pieces(in_threads, cores)
        finally:
            pool.shutdown(cancel_futures=True)
    else:
        yield None


def _by_pieces(spread: Callable, workers: int):
    """A function of points that is evaluated in a few pieces for each worker, none of them empty."""

    def where(kind, points):
        pieces = np.array_split(points, max(min(len(points), PIECES * workers), 1))
        return np.concatenate(spread(kind, pieces))

    return where
