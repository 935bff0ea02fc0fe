"""Statistics of rows that dask holds: one task per chunk, and a tree of merges."""

from contextlib import contextmanager

import numpy as np
from pymc.progress_bar import create_simple_progress

from pymc_scalable_gp.core.data.inputs import check_block, names_of
from pymc_scalable_gp.core.data.labels import refuse_another_order
from pymc_scalable_gp.core.rows.collect import Basis, Collector, collect
from pymc_scalable_gp.core.rows.sources import Block, dataset_arrays, open_source, table_names
from pymc_scalable_gp.core.rows.statistics import RowStatistics
from pymc_scalable_gp.core.rows.triangle import QR_LIMIT

# Number of statistics merged at a time.
_FAN_IN = 8
_LEAF = "statistics of rows"


def summarize_source(gp, source, y, columns, checkpoint, progressbar) -> RowStatistics:
    """:meth:`FeatureMarginal.summarize`."""
    if is_dask(source):
        if checkpoint is not None:
            raise TypeError("checkpoint= is not for dask, which repeats lost tasks itself")
        return collect_dask(Basis.of(gp), source, y, columns, progressbar)
    opened = open_source(source, y, columns)
    X = source[0] if isinstance(source, tuple) else source
    if not gp.is_built and isinstance(X, np.ndarray):
        gp.build(X)
    return collect(Basis.of(gp), opened, progressbar, checkpoint)


def is_dask(source) -> bool:
    """Whether a source (or the first of a pair) is held by dask, itself or within xarray."""
    source = source[0] if isinstance(source, tuple) and source else source
    if hasattr(source, "data_vars"):
        return any(is_dask(v) for v in source.data_vars.values())
    return hasattr(_bare(source), "__dask_graph__")


def _bare(array):
    """The array within an xarray DataArray, or the array itself."""
    return array.data if hasattr(array, "dims") else array


def collect_dask(basis: Basis, source, y, columns, progressbar) -> RowStatistics:
    """As ``collect``, of dask arrays or tables; ValueError also for chunks that cannot be aligned."""
    from dask import compute, delayed

    pairs, label, size, names = _chunks(source, y, columns)
    width = len(basis.mark.values[0])
    limit = -1.0 if size is not None and size * float(width) ** 2 > QR_LIMIT else np.inf
    shared = delayed(basis, traverse=False)
    leaf, join = delayed(_leaf), delayed(_join)
    parts = [
        leaf(shared, X, target, f"{label}, block {number}", limit, names, dask_key_name=f"{_LEAF}-{number}")
        for number, (X, target) in enumerate(pairs)
    ]
    count = len(parts)
    while len(parts) > 1:
        parts = [join(parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
    with _progress(count, progressbar):
        (found,) = compute(parts[0])
    if found is None:
        raise ValueError(f"{label}: the source has no rows")
    return found


def _chunks(source, y, columns) -> tuple[list, str, int | None, tuple[str, ...]]:
    """Pairs of delayed chunks (X, y), a name for errors, the number of rows where it is known.

    And the names of the inputs, where the chunks do not have them.
    """
    from dask.array import from_array

    names = ()
    if isinstance(source, tuple) and len(source) == 2 and y is None:
        source, y = source
    refuse_another_order(source, y)
    if hasattr(source, "data_vars"):
        source, y = dataset_arrays(source, y, columns)
        names = tuple(str(name) for name in source["variable"].values)
    elif hasattr(source, "npartitions") and hasattr(source, "columns"):
        y, columns = table_names(list(source.columns), y, columns)
        parts = zip(source[columns].to_delayed(), source[y].to_delayed(), strict=True)
        return list(parts), "dask DataFrame", None, names
    elif columns is not None:
        raise TypeError("columns= is for tables: of an array take X[:, ...]")
    X, y = _bare(source), _bare(np.asarray(y) if isinstance(y, list | tuple) else y)
    if y is None or X.ndim != 2 or y.ndim != 1:
        raise ValueError("of a dask array, give X (n, d) and y (n,)")
    X = X if hasattr(X, "rechunk") else from_array(X)  # of a dataset that is lazy in part
    X = X.rechunk({1: -1})
    unknown = np.isnan([*X.shape, *y.shape]).any()
    if not unknown and X.shape[0] != y.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, y has {y.shape[0]} values")
    if not hasattr(y, "to_delayed"):
        if unknown:
            raise ValueError("X has chunks of unknown lengths: call compute_chunk_sizes()")
        y = from_array(np.asarray(y), chunks=(X.chunks[0],))
    if not unknown:
        y = y.rechunk((X.chunks[0],))
    elif len(X.chunks[0]) != len(y.chunks[0]):
        raise ValueError("X and y have different chunks, of unknown lengths: call compute_chunk_sizes()")
    pairs = zip(X.to_delayed().ravel(), y.to_delayed(), strict=True)
    return list(pairs), "dask array", None if unknown else X.shape[0], names


def _leaf(basis, X, y, label, limit, names) -> RowStatistics | None:
    """Statistics of one chunk; None where it is empty."""
    names = names_of(X) or names
    X, y = check_block(X, y, label, 0)
    if not len(y):
        return None
    collector = Collector(basis, limit)
    collector.add(Block(0, X, y, names), label)
    return collector.statistics()


def _join(parts) -> RowStatistics | None:
    """Statistics of some chunks, in their order."""
    found = [part for part in parts if part is not None]
    return sum(found[1:], found[0]) if found else None


@contextmanager
def _progress(count, progressbar):
    """A bar that goes on with each chunk, where dask runs in this process; a cluster has its dashboard."""
    from dask.base import get_scheduler
    from dask.callbacks import Callback

    scheduler = type(getattr(get_scheduler(), "__self__", None)).__module__
    remote = scheduler.startswith("distributed")
    bar = create_simple_progress(progressbar=progressbar and not remote)
    task = bar.add_task("Summarising the rows", completed=0, total=count)

    def done(key, *_):
        if str(key).startswith(_LEAF):
            bar.advance(task)

    with bar, Callback(posttask=done):
        yield
