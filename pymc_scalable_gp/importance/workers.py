"""Densities side by side: in processes of this machine, or on the workers of a Dask cluster."""

from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import cloudpickle
import numpy as np
from joblib.externals.loky import ProcessPoolExecutor

PIECES = 4  # tasks for each worker: whoever is done early takes another
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")} | {
    "VECLIB_MAXIMUM_THREADS": "1"
}


@lru_cache(maxsize=2)
def _graphs(payload: bytes | Path):
    """Graphs of a worker, unpickled once, so that each compiles once per process."""
    return cloudpickle.loads(payload if isinstance(payload, bytes) else payload.read_bytes())


_one_at_a_time = Lock()  # PyTensor's functions have their storage, and are no two threads' at once


def _evaluate(payload: bytes | Path, kind: str, points: np.ndarray) -> np.ndarray:
    """Rows at `points` in a worker, whose threads share one compiled function."""
    points = np.array(points)  # what came over a network need not be aligned in memory
    with _one_at_a_time:
        return _graphs(payload).rows(kind, points)


@contextmanager
def side_by_side(graphs, cores: int = 1, client=None):
    """A function ``where(kind, points)`` for `Density`, or None for one core of this process.

    Processes are started afresh, never forked, with one BLAS and Numba thread each; the workers of a
    `client`, a distributed.Client, take precedence. The `graphs` are pickled with cloudpickle, and compiled
    in each worker.
    """
    if client is not None:
        workers = max(len(client.scheduler_info()["workers"]), 1)
        payload = client.scatter(cloudpickle.dumps(graphs), broadcast=True, hash=False)
        yield _by_pieces(
            lambda *given: client.gather(client.map(*given, pure=False)), payload, workers
        )
    elif cores > 1:
        pool = ProcessPoolExecutor(cores, env=_ONE_THREAD)
        # By a file: graphs hold the data, which would go through a pipe with every piece.
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            payload = Path(folder) / "graphs"
            payload.write_bytes(cloudpickle.dumps(graphs))
            try:
                yield _by_pieces(pool.map, payload, cores)
            finally:
                pool.shutdown(wait=True, kill_workers=True)
    else:
        yield None


def _by_pieces(spread, payload, workers):
    """A function of points that is evaluated in a few pieces for each worker, none of them empty."""

    def where(kind, points):
        pieces = np.array_split(points, max(min(len(points), PIECES * workers), 1))
        same = [payload] * len(pieces), [kind] * len(pieces)
        return np.concatenate(list(spread(_evaluate, *same, pieces)))

    return where
