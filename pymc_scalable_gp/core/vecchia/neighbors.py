"""Rows cut into blocks, put in an order, and each block's nearest earlier rows."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance, Constant, Stationary
from pymc.progress_bar import create_simple_progress
from sklearn.neighbors import NearestNeighbors

from pymc_scalable_gp.core.features.nystrom import NystromMap, pivoted_rows, reference_values
from pymc_scalable_gp.cov.embedded import EmbeddedKernel
from pymc_scalable_gp.cov.kernels import traits
from pymc_scalable_gp.cov.queries import leaves
from pymc_scalable_gp.utils.blocks import blocks
from pymc_scalable_gp.utils.checks import check_kernel_values
from pymc_scalable_gp.utils.compiled import compiled

# Candidates looked at for each neighbour that is taken.
_CANDIDATES = 4

# Inducing points that place the rows of other kernels.
_PLACES = 64

# Blocks whose candidates are compared at a time.
_CHUNK = 64


class Metric:
    """Coordinates of inputs in which near rows are highly correlated, at one point of the model.

    Inputs over their lengthscales where the kernel is made of stationary ones, of X or of other inputs;
    else features from a few inducing points, over the prior standard deviation. X (n, d) are the training
    inputs, and `point` holds hyperparameters: the model's initial point stands in for those left out.
    """

    def __init__(self, cov_func, X, point=None):
        others = [leaf for leaf in leaves(cov_func) if isinstance(leaf, BaseCovariance)]
        kernels = [leaf for leaf in others if isinstance(leaf, Stationary | EmbeddedKernel)]
        # Such kernels fall with the Euclidean distance of scaled inputs.
        plain = all(traits(leaf).fused or isinstance(leaf, Constant | EmbeddedKernel) for leaf in others)
        inputs = pt.matrix("inputs", dtype="float64")
        if kernels and plain:
            places = [_places(kernel, inputs, X[0]) for kernel in kernels]
        else:
            rows = pivoted_rows(cov_func, X, min(_PLACES, max(len(X) - 1, 1)), 0, point)
            found = NystromMap(cov_func, pt.constant(X[rows]), X.min(axis=0), X.max(axis=0))
            # Of no prior variance a row is at the origin.
            variance = pt.maximum(found.kernel_diag(inputs), np.finfo(float).tiny)
            places = [found.features(inputs) / pt.sqrt(variance)[:, None]]
        variables, self._values = reference_values(places, point, [inputs])
        self._function = compiled([inputs, *variables], pt.concatenate(places, axis=1))

    def coordinates(self, X: np.ndarray) -> np.ndarray:
        """Coordinates (n, p), float64."""
        found = [self._function(block, *self._values) for _, block in blocks(X)]
        check_kernel_values(*found)
        return np.ascontiguousarray(np.concatenate(found), dtype=float)


def _places(kernel, inputs, first):
    """Coordinates (n, q) of one kernel; `first` is a row of the inputs."""
    if isinstance(kernel, EmbeddedKernel):
        return kernel.embedded(inputs, first).places
    # From the first row on: an offset would cost digits.
    return (inputs - first)[:, kernel.active_dims] / pt.as_tensor(kernel.ls)


@dataclass(frozen=True, eq=False)
class Ordering:
    """An order of the training rows in blocks, and earlier rows that blocks are given."""

    order: np.ndarray  # rows of X (n,), in the order of the blocks
    neighbors: np.ndarray  # places (b, k) in that order, nearest first, and -1 where there are fewer
    block: int  # rows of a block; the last one may have fewer
    count: int  # neighbours of new rows
    metric: Metric | None
    placed: np.ndarray  # coordinates of the rows, in the order of the blocks

    @cached_property
    def tree(self) -> NearestNeighbors:
        """The training rows, for searches of as many neighbours as new rows have."""
        return NearestNeighbors(n_neighbors=min(self.count, len(self.order))).fit(self.placed)

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """Places (n*, k) of the training rows next to new inputs, nearest first, -1 after the last."""
        out = np.full((len(X), self.count), -1, dtype=np.int64)
        if out.size:
            found = self.tree.kneighbors(self.metric.coordinates(X), return_distance=False)
            out[:, : found.shape[1]] = found
        return out

    def nearest_jointly(self, X: np.ndarray) -> np.ndarray:
        """As `nearest`, with the new rows before each one too; these count on from n, and come first.

        Places that are not used hold -1, at the end.
        """
        out, n = np.full((len(X), self.count), -1, dtype=np.int64), len(self.order)
        if not out.size:
            return out
        placed = self.metric.coordinates(X)
        tree = NearestNeighbors().fit(np.concatenate([self.placed, placed]))
        found = _earlier(tree, placed, n + np.arange(len(X)), self.count)
        for i, rows in enumerate(found):
            new = rows >= n
            out[i, : len(rows)] = np.concatenate([rows[new], rows[~new]])
        return out


def order_rows(
    X, metric, block: int, neighbors: int, pred_neighbors: int = 0, random_seed=0, progressbar=True
) -> Ordering:
    """Cut rows X (n, d) into blocks that lie close together, in random order, each with its neighbours.

    Each block of g rows is conditioned on k = `neighbors` earlier rows, and each new row on
    `pred_neighbors`. Without a metric `neighbors` must be 0, and new rows have none.

    Neighbours are searched by batches of blocks that double in size, each in a tree of the rows that
    come before its end. Among the rows nearest to a block's centre those are taken that are nearest to
    any row of the block. O(n log n) in few dimensions; in many a tree is no faster than O(n^2 / g).
    """
    n = len(X)
    block = min(block, n)
    if metric is None:
        empty = np.full((-(-n // block), 0), -1)
        return Ordering(np.arange(n), empty, block, 0, None, np.zeros((n, 0)))
    placed = metric.coordinates(X)
    order, full = cut(placed, block), n // block * block
    blocks_ = order[:full].reshape(-1, block)
    blocks_ = blocks_[np.random.default_rng(random_seed).permutation(len(blocks_))]
    order = np.concatenate([blocks_.ravel(), order[full:]])
    placed = placed[order]
    found = _search(placed, block, neighbors, progressbar)
    return Ordering(order, found, block, min(pred_neighbors, 2 * n), metric, placed)


def cut(placed: np.ndarray, block: int) -> np.ndarray:
    """Order in which each run of `block` rows lies close together: halves along the widest coordinate."""
    order, todo = np.arange(len(placed)), [(0, len(placed))]
    while todo:
        start, stop = todo.pop()
        if stop - start <= block:
            continue
        rows = order[start:stop]
        widest = np.argmax(np.ptp(placed[rows], axis=0))
        half = -(-(stop - start) // block) // 2 * block
        order[start:stop] = rows[np.argpartition(placed[rows, widest], half - 1)]
        todo += [(start, start + half), (start + half, stop)]
    return order


def _search(placed, block, count, progressbar) -> np.ndarray:
    """Neighbours (b, count) of each block among the rows before it."""
    starts = np.arange(0, len(placed), block)
    count = min(count, starts[-1])
    out = np.full((len(starts), count), -1, dtype=np.int64)
    if not count:
        return out
    progress = create_simple_progress(progressbar=progressbar and len(placed) > 2**15)
    with progress:
        task = progress.add_task("Searching neighbors", completed=0, total=len(starts))
        first = 1
        while first < len(starts):
            last = min(2 * first, len(starts))
            tree = NearestNeighbors().fit(placed[: starts[last - 1]])
            for low in range(first, last, _CHUNK * 16):
                high = min(low + _CHUNK * 16, last)
                _fill(out, tree, placed, starts, block, low, high, count)
                progress.update(task, completed=high)
            first = last
    return out


def _fill(out, tree, placed, starts, block, low, high, count):
    """Neighbours of the blocks from `low` to `high`, among the rows of a tree: the first of `placed`."""
    centers = np.stack([placed[s : s + block].mean(axis=0) for s in starts[low:high]])
    found = _earlier(tree, centers, starts[low:high], _CANDIDATES * count)
    for b, near in zip(range(low, high), found, strict=True):
        own = placed[starts[b] : starts[b] + block]
        square = np.full(len(near), np.inf)
        for row in own:
            np.minimum(square, ((placed[near] - row) ** 2).sum(axis=1), out=square)
        chosen = near[np.argsort(square, kind="stable")[:count]]
        out[b, : len(chosen)] = chosen


def _earlier(tree, centers, limits, count) -> list[np.ndarray]:
    """For each centre up to `count` of the nearest rows of a tree before its limit, nearest first."""
    total = tree.n_samples_fit_
    found, todo, asked = [None] * len(centers), np.arange(len(centers)), min(2 * count, total)
    while len(todo):
        near = tree.kneighbors(centers[todo], n_neighbors=asked, return_distance=False)
        left = []
        for place, candidates in zip(todo, near, strict=True):
            before = candidates[candidates < limits[place]]
            if len(before) >= min(count, limits[place]) or asked == total:
                found[place] = before[:count]
            else:
                left.append(place)
        todo, asked = np.array(left, dtype=int), min(2 * asked, total)
    return found


def changed_share(ordering: Ordering, X: np.ndarray, metric: Metric, sample: int = 256) -> float:
    """Share of neighbours, of at most `sample` blocks, that the metric of other parameters replaces."""
    count, block = ordering.neighbors.shape[1], ordering.block
    total = len(ordering.neighbors)
    if not count:
        return 0.0
    placed = metric.coordinates(X[ordering.order])
    chosen = np.unique(np.linspace(total // 2, total - 1, sample).astype(int))
    out = np.full((len(chosen), count), -1, dtype=np.int64)
    tree = NearestNeighbors().fit(placed)
    _fill(out, tree, placed, chosen * block, block, 0, len(chosen), count)
    pairs = [(a[a >= 0], ordering.neighbors[b]) for a, b in zip(out, chosen, strict=True)]
    kept = sum(len(np.intersect1d(new, old)) for new, old in pairs)
    return 1.0 - kept / sum(len(new) for new, _ in pairs)
