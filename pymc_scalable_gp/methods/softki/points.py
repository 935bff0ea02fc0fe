"""Interpolation points: k-means centres, and checks of given ones."""

import warnings
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from scipy.spatial import cKDTree
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from pymc_scalable_gp.core.data.inputs import Data, check_inputs
from pymc_scalable_gp.cov.queries import categorical_columns, is_embedded, layout_values
from pymc_scalable_gp.utils.checks import RefuseShape, check_count
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.warn import warn

# k-means runs on this many rows at most: centres need no more, and its cost grows with n m d.
KMEANS_ROWS = 65_536

# Points where no number is given: as many as in the paper, and no more than half the distinct rows.
DEFAULT_POINTS = 512


def kmeans_points(X: np.ndarray, count: int | None, random_seed=None) -> np.ndarray:
    """Centres (count, d) of the rows of X by one run of k-means++ and Lloyd's algorithm.

    With `count` None: 512 of them, or half as many as there are distinct rows where that is less. Raises
    ValueError if X has fewer distinct rows than `count`.
    """
    rng = np.random.default_rng(random_seed)
    if X.shape[0] > KMEANS_ROWS:
        X = X[np.sort(rng.permutation(X.shape[0])[:KMEANS_ROWS])]
    if count is None:
        count = max(min(DEFAULT_POINTS, len(np.unique(X, axis=0)) // 2), 1)
    if X.shape[0] < 4 * count:  # with more rows the algorithm itself notices
        distinct = len(np.unique(X, axis=0))
        if distinct < count:
            raise ValueError(
                f"inducing={count} points need as many distinct rows, but X has {distinct}: use "
                f"inducing={distinct} or fewer, or sgp.ExactMarginal, which is exact and fast here"
            )
    means = KMeans(count, n_init=1, random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            means.fit(X)
        except ConvergenceWarning as found:
            raise ValueError(f"inducing={count}: X has too few distinct rows ({found})") from None
    return means.cluster_centers_


def spread_points(cov_func, X: np.ndarray, count: int | None, random_seed=None) -> np.ndarray:
    """K-means centres of rows X (n, d); of other inputs, and with categories, the rows nearest to those."""
    if not (is_embedded(cov_func) or categorical_columns(cov_func, X.shape[1]).size):
        return kmeans_points(X, count, random_seed)
    # Labels are so far apart that each gets points, and no farther: k-means would look at nothing else.
    width = np.linalg.norm(np.ptp(layout_values(cov_func, X, 0.0), axis=0))
    placed = layout_values(cov_func, X, width or 1.0)
    near = cKDTree(placed).query(kmeans_points(placed, count, random_seed))[1]
    return X[np.unique(near)]


def check_inducing(inducing) -> int | Data | None:
    """``inducing=`` of the classes: a number of points, the points (m, d), or None for the default."""
    if isinstance(inducing, int | np.integer | bool):
        return check_count("inducing", inducing)
    return None if inducing is None else check_points(inducing, "inducing")


def check_points(points, name: str) -> Data:
    """Points (m, d), with a warning where some coincide: they share a weight and make K_zz singular."""
    data = check_inputs(points, name)
    copies = len(data.value) - len(np.unique(data.value, axis=0))
    if copies and not is_random(data.tensor):
        warn(
            f"{copies} of the {len(data.value)} points in {name} are duplicates: drop them with "
            f"np.unique({name}, axis=0)"
        )
    return data


def present_points(points: Data, d: int, name: str) -> Data:
    """The present points, checked against the `d` columns of X.

    Those of ``pm.Data`` may move later, but the features have fixed their number: the tensor refuses
    another one, with a ValueError at run time.
    """
    data = check_inputs(points.tensor if points.mutable else points.value, name, d)
    count = data.value.shape[0]
    if data.tensor.type.shape[0] == count:
        return data
    same = RefuseShape(
        f"{name} had {count} points when the GP was built, and another number since pm.set_data: give "
        f"{count} points, or build a new model"
    )
    tensor = same(data.tensor, pt.eq(data.tensor.shape[0], count))
    return replace(data, tensor=pt.specify_shape(tensor, (count, None)))
