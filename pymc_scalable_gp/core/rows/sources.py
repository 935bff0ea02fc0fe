"""Sources of rows: arrays in memory or on disk, tables, streams; read in blocks, checked as they come."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Variable

from pymc_scalable_gp.core.data.inputs import check_block, names_of, warn_rounded
from pymc_scalable_gp.core.data.labels import refuse_another_order

# Rows that are read at a time where the source does not say.
ROWS = 65536


class Block(NamedTuple):
    """Checked rows: the place of the first, inputs (b, d), targets (b,); names of a table's inputs."""

    start: int
    X: np.ndarray
    y: np.ndarray
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """Rows that come in blocks: their number, where it is known, and how to read from some row on.

    `columns` are the names of the inputs, where the blocks themselves have none.
    """

    label: str
    size: int | None
    read: Callable[[int], Iterator[tuple[Any, Any]]]
    columns: tuple[str, ...] = ()

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """Checked blocks from row `start` on; errors name source, block and row."""
        width = None
        for number, (X, y) in enumerate(self.read(start)):
            where = f"{self.label}, block {number} (rows from {start})"
            names = names_of(X) or self.columns
            came, (X, y) = X, check_block(X, y, where, start)
            if width is None:
                warn_rounded(came, X, "X")
            if width is not None and X.shape[1] != width:
                raise ValueError(f"{where}: X has {X.shape[1]} columns, the blocks before {width}")
            width = X.shape[1]
            if len(y):
                yield Block(start, X, y, names)
            start += len(y)


def open_source(source, y=None, columns=None) -> Source:
    """Rows of any kind of source that :meth:`FeatureMarginal.summarize` takes; an error for others."""
    if isinstance(source, Variable) or isinstance(y, Variable):
        raise TypeError("statistics hold rows as they are now: give arrays, no pm.Data or tensors")
    if isinstance(source, tuple) and len(source) == 2 and y is None:
        if not all(isinstance(each, tuple) for each in source):  # else two blocks
            source, y = source
    if isinstance(source, list) and y is not None:
        source = np.asarray(source)
    refuse_another_order(source, y)
    if isinstance(source, str | Path):
        return _parquet(Path(source), y, columns)
    if hasattr(source, "data_vars"):
        X, y = dataset_arrays(source, y, columns)
        return _arrays(X, y, [str(name) for name in X["variable"].values])
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return _table(source, y, columns)
    if hasattr(source, "shape"):
        if columns is not None:
            raise TypeError("columns= is for tables: of an array take X[:, ...]")
        return _arrays(source, y)
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        if y is not None or columns is not None:
            raise TypeError("an iterator gives pairs (X, y) itself: leave y and columns out")
        return _stream(source)
    raise TypeError(
        f"cannot read rows from {type(source).__name__}: give arrays X and y (NumPy, memmap, zarr, "
        "xarray, dask), a table or the path of a Parquet file with y= the name of a column, or an "
        "iterator of pairs (X, y)"
    )


def _arrays(X, y, columns=()) -> Source:
    if y is None:
        raise ValueError("give the targets y beside X")
    if isinstance(y, str):
        raise TypeError(
            "y= names a column of a pandas or Dask table, of an xarray Dataset or a Parquet file, not of "
            f"{type(X).__name__}: give arrays"
        )
    y = y if hasattr(y, "shape") and not hasattr(y, "iloc") else np.asarray(y)
    if len(X.shape) != 2 or len(y.shape) != 1 or X.shape[0] != y.shape[0]:
        raise ValueError(
            f"X and y must have shapes (n, d) and (n,), got {tuple(X.shape)} and {tuple(y.shape)}"
        )
    n = X.shape[0]
    if n == 0:
        raise ValueError("the source has no rows")
    chunks = getattr(X, "chunks", None)
    rows = chunks[0] if chunks and isinstance(chunks[0], int) else 1
    step = rows * max(1, ROWS // rows)  # whole chunks where the array is stored in such

    def read(start):
        while start < n:
            stop = min(n, (start // step + 1) * step)  # whole chunks: each is read once
            yield X[start:stop], y[start:stop]
            start = stop

    return Source(type(X).__name__, n, read, tuple(columns))


def table_names(table, y, columns):
    """Names of the target and of the inputs of a table."""
    if y is None or np.ndim(y):
        raise ValueError(f"of a table, y= is the name of a column, got {y!r}")
    columns = [c for c in table if c != y] if columns is None else list(columns)
    unknown = [c for c in [y, *columns] if c not in table]
    if unknown:
        raise ValueError(f"the table has no column {', '.join(map(repr, unknown))}: it has {table}")
    if y in columns or not columns:
        raise ValueError(f"columns must name inputs other than y={y!r}, got {columns}")
    return y, columns


def _table(table, y, columns) -> Source:
    if np.ndim(y):
        inputs, y = table if columns is None else table[list(columns)], np.asarray(y)
    else:
        y, columns = table_names(list(table.columns), y, columns)
        inputs, y = table[columns], table[y].to_numpy()
    return _arrays(inputs.to_numpy(), y, names_of(inputs))


def dataset_arrays(dataset, y, columns):
    """Inputs (n, d) and targets (n,) of an xarray Dataset: variables over one dimension."""
    y, columns = table_names([str(v) for v in dataset.data_vars], y, columns)
    dims = dataset[y].dims
    wrong = [c for c in columns if dataset[c].dims != dims]
    if wrong or len(dims) != 1:
        raise ValueError(f"y and all columns must be over one dimension; {wrong or y} are not")
    return dataset[columns].to_dataarray().transpose(*dims, "variable"), dataset[y]


def _parquet(path, y, columns) -> Source:
    try:
        import pyarrow.dataset as pads
    except ImportError:
        raise ImportError(
            f"reading {path} needs pyarrow: pip install pyarrow, or the extra pymc_scalable_gp[scale]"
        ) from None
    try:
        data = pads.dataset(path)
    except ValueError as error:
        raise ValueError(
            f"{path} is no Parquet file that can be read ({error}): of other files give arrays, such as "
            "np.load(path, mmap_mode='r') or zarr.open(path), or an iterator, as pd.read_csv(path, "
            "chunksize=...) leads to"
        ) from None
    y, columns = table_names(data.schema.names, y, columns)
    kinds = {c: data.schema.field(c).type for c in [*columns, y]}
    wrong = [f"{c} ({kind})" for c, kind in kinds.items() if not _is_number(kind)]
    if wrong:
        raise TypeError(
            f"{path}: columns must be numeric, and these are not: {', '.join(wrong)}. Give columns="
        )
    n = data.count_rows()
    if n == 0:
        raise ValueError(f"{path} has no rows")

    def read(start):
        skip = start
        for batch in data.to_batches(columns=[*columns, y], batch_size=ROWS):
            if skip >= len(batch):
                skip -= len(batch)
                continue
            rows, skip = batch.slice(skip), 0
            X = [rows.column(c).to_numpy(zero_copy_only=False) for c in columns]
            yield np.column_stack(X), rows.column(y).to_numpy(zero_copy_only=False)

    return Source(str(path), n, read, tuple(columns))


def _is_number(kind) -> bool:
    """Whether a type of pyarrow, or that of a dictionary's values, holds numbers."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    tests = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null
    return any(test(kind) for test in tests)


def _stream(pairs) -> Source:
    def read(start):
        skip = start
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(f"an iterator must give pairs (X, y), got {type(pair).__name__}")
            y = pair[1]
            if np.ndim(y) == 0:
                raise TypeError(
                    "an iterator must give blocks of rows, X (rows, d) and y (rows,), got a single row"
                )
            if skip >= len(y):
                skip -= len(y)
                continue
            # Before pandas 3 [] goes by the labels of an index of floats.
            yield tuple(getattr(rows, "iloc", rows)[skip:] for rows in pair)
            skip = 0
        if skip:
            raise ValueError(
                f"the checkpoint has {skip} rows more than the iterator: it belongs to another pass. "
                "Delete it to start anew"
            )

    return Source("iterator", None, read)
