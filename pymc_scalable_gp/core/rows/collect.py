"""Statistics of rows from any source: one pass, in blocks, on this machine or wherever dask runs."""

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.progress_bar import create_simple_progress

from pymc_scalable_gp.core.data.inputs import refuse_other_columns
from pymc_scalable_gp.core.data.mean import MeanDesign, mean_design
from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.rows.sources import Block, Source
from pymc_scalable_gp.core.rows.statistics import BasisMark, RowStatistics
from pymc_scalable_gp.core.rows.triangle import QR_LIMIT, RowFactor, RowFunction, target_blocks
from pymc_scalable_gp.utils.blocks import BLOCK
from pymc_scalable_gp.utils.classes import Listed
from pymc_scalable_gp.utils.graphs import depends_only_on

# Seconds between two writes of a checkpoint.
_PERIOD = 60.0


def row_function(basis, design: MeanDesign) -> RowFunction:
    """Numbers of ``[B | H | fixed mean]``, with B a function of X and H the columns of the mean."""
    return RowFunction(lambda X: pt.concatenate([basis(X), *design.values(X)], axis=1))


class Basis(NamedTuple):
    """The functions that rows are summarised in: features, columns of the mean, both compiled; a mark.

    And the names of the inputs, where the GP was built on a table.
    """

    feature_map: FeatureMap
    design: MeanDesign
    function: RowFunction
    mark: BasisMark
    columns: tuple[str, ...]

    @classmethod
    def of(cls, gp) -> "Basis":
        """A GP's basis and the columns of its mean; ValueError if statistics cannot hold them."""
        gp.check_summarizable()
        if not gp.is_built:
            raise ValueError(
                "build(X) the GP first, on a sample of rows that spans the range of all (the same "
                "sample, wherever these statistics are used)"
            )
        feature_map = gp.feature_map
        if feature_map.input_range is None:
            raise ValueError(f"{type(feature_map).__name__} has no range of inputs to tell its basis by")
        probes = feature_map.input_range.probes
        design = mean_design(gp.mean_func, probes.shape[1])
        if design is None:
            raise ValueError(
                f"the mean {type(gp.mean_func).__name__} has free parameters and is not linear in them, "
                "which statistics of rows cannot hold: take pm.gp.mean.Constant, Linear or a sum of "
                "these, fix its parameters, or give X and y instead of statistics"
            )
        X = pt.matrix("X")
        if not depends_only_on([feature_map.basis(X)], [X]):
            raise ValueError(
                "the basis has free parameters or data that may be replaced, and statistics hold one "
                f"fixed basis, as has {Listed.names_with('statistics')}"
            )
        function = row_function(feature_map.basis, design)
        values = function(probes)
        columns = values.shape[1] - 1 - design.count
        mark = BasisMark(probes, values, columns, design.count)
        return cls(feature_map, design, function, mark, gp.columns)

    def check(self, block: Block, label: str) -> None:
        """Raise ValueError for rows that the basis does not describe."""
        d = self.mark.inputs.shape[1]
        if block.X.shape[1] != d:
            raise ValueError(f"{label}: X has {block.X.shape[1]} columns, the GP was built on {d}")
        refuse_other_columns(block, self.columns, f"{label}: X")
        X = block.X
        found = self.feature_map.covering(X.min(axis=0), X.max(axis=0))
        limits = found.input_range
        text = found.outside(X) or limits.unknown(X) or limits.outside(X, "the inputs of the build")
        if text:
            raise ValueError(
                f"{label}, rows from {block.start}: {text}: build the GP on a sample of rows that "
                "spans the range of all"
            )


def basis_of(gp, statistics) -> Basis:
    """A GP's basis; TypeError or ValueError unless it is that of the statistics."""
    if not isinstance(statistics, RowStatistics):
        raise TypeError(
            f"statistics must be what gp.summarize(...) returns, got {type(statistics).__name__}"
        )
    basis = Basis.of(gp)
    difference = basis.mark.difference(statistics.mark)
    if difference:
        raise ValueError(
            f"these statistics were made in another basis: {difference}. Build the GP as it was then, "
            "or summarise the rows again"
        )
    return basis


class Collector:
    """Triangle of ``[B | H | y]`` and the range of inputs, of the rows so far."""

    def __init__(self, basis: Basis, limit: float):
        self.basis = basis
        mark = basis.mark
        self.factor = RowFactor(mark.columns + mark.design + 1, limit)
        self.low = np.full(mark.inputs.shape[1], np.inf)
        self.high = -self.low
        self.whole = True  # False while a block is being taken in

    def add(self, block: Block, label: str) -> None:
        """Take in rows."""
        self.basis.check(block, label)
        self.whole = False
        self.low = np.minimum(self.low, block.X.min(axis=0))
        self.high = np.maximum(self.high, block.X.max(axis=0))
        for values in target_blocks(self.basis.function, block.X, block.y, progressbar=False):
            self.factor.add(values)
        self.whole = True

    def restore(self, path: Path, size: int | None) -> int:
        """Go on from earlier rows' statistics; their number. ValueError for those of another pass."""
        found = RowStatistics.load(path)
        difference = self.basis.mark.difference(found.mark)
        if difference or (size is not None and found.size > size):
            raise ValueError(
                f"the checkpoint {path} belongs to another pass: "
                f"{difference or f'it has {found.size} rows, the source {size}'}. Delete it to start anew"
            )
        self.factor.add_triangle(found.triangle, found.size)
        self.low, self.high = found.low, found.high
        return found.size

    def statistics(self) -> RowStatistics:
        """Statistics of the rows so far."""
        mark = self.basis.mark
        return RowStatistics(self.factor.triangle(), self.factor.size, self.low, self.high, mark)


def collect(basis: Basis, source: Source, progressbar=True, checkpoint=None) -> RowStatistics:
    """One pass over a source, from a checkpoint on if there is one; ValueError for bad rows, or none."""
    width = len(basis.mark.values[0])
    known = source.size is not None and source.size * float(width) ** 2 > QR_LIMIT
    collector = Collector(basis, -1.0 if known else QR_LIMIT)
    path, written = None if checkpoint is None else Path(checkpoint), time.monotonic()
    if path is not None and not path.parent.is_dir():
        raise FileNotFoundError(f"checkpoint={str(path)!r} is in no folder that exists: make it first")
    resumed = path is not None and path.exists()
    start = collector.restore(path, source.size) if resumed else 0
    long = source.size is None or source.size > 20 * BLOCK
    progress = create_simple_progress(progressbar=progressbar and long)
    with progress:
        task = progress.add_task("Summarising the rows", completed=start, total=source.size)
        try:
            for block in source.blocks(start):
                collector.add(block, source.label)
                if path is not None and time.monotonic() - written > _PERIOD:
                    collector.statistics().save(path)
                    written = time.monotonic()
                progress.update(task, completed=collector.factor.size)
        except BaseException:
            if path is not None and collector.whole and collector.factor.size:
                collector.statistics().save(path)
            raise
    if collector.factor.size == 0:
        raise ValueError(f"{source.label}: the source has no rows")
    if path is not None:
        path.unlink(missing_ok=True)
    return collector.statistics()
