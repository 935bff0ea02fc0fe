"""Densities side by side: in processes of this machine, or on the workers of a Dask cluster."""

from contextlib import contextmanager
from functools import lru_cache
from threading import Lock

import cloudpickle
import numpy as np
from joblib.externals.loky import ProcessPoolExecutor

PIECES = 4  # tasks for each worker: whoever is done early takes another
_ONE_THREAD = {
    name: "1"
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    )
}


@lru_cache(maxsize=2)
def _graphs(payload: bytes):
    """Graphs of a worker, unpickled once, so that each compiles once per process."""
    return cloudpickle.loads(payload)


_one_at_a_time = Lock()  # PyTensor's functions have their storage, and are no two threads' at once


def _evaluate(payload: bytes, kind: str, points: np.ndarray) -> np.ndarray:
    """Rows at `points` in a worker, whose threads share one compiled function."""
    points = np.array(points)  # what came over a network need not be aligned in memory
    with _one_at_a_time:
        return _graphs(payload).rows(kind, points)


@contextmanager
def side_by_side(graphs, cores: int = 1, client=None):
    """A function ``where(kind, points)`` for `Density`, or None for one core of this process.

    Processes are started afresh, never forked, with one BLAS and Numba thread each.

    Parameters
    ----------
    graphs : Graphs
        Pickled with cloudpickle, and compiled in each worker.
    cores : int
    client : distributed.Client, optional
        Takes precedence over `cores`.
    """
    if client is not None:
        workers = max(len(client.scheduler_info()["workers"]), 1)
        payload = client.scatter(cloudpickle.dumps(graphs), broadcast=True, hash=False)

        def on_cluster(kind, points):
            futures = [
                client.submit(_evaluate, payload, kind, piece, pure=False)
                for piece in _pieces(points, workers)
            ]
            return np.concatenate(client.gather(futures))

        yield on_cluster
    elif cores > 1:
        payload = cloudpickle.dumps(graphs)
        pool = ProcessPoolExecutor(cores, env=_ONE_THREAD)

        def on_cores(kind, points):
            pieces = _pieces(points, cores)
            count = len(pieces)
            return np.concatenate(
                list(pool.map(_evaluate, [payload] * count, [kind] * count, pieces))
            )

        try:
            yield on_cores
        finally:
            pool.shutdown(wait=True, kill_workers=True)
    else:
        yield None


def _pieces(points, workers):
    """Points in a few pieces for each worker, none of them empty."""
    return np.array_split(points, max(min(len(points), PIECES * workers), 1))
