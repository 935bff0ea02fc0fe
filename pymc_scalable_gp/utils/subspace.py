"""Leading eigenpairs of a matrix that is known by its products."""

from collections.abc import Callable

import numpy as np

# Iterations, and columns beyond those asked for.
_ITERATIONS, _EXTRA = 2, 10


def leading_eigenpairs(
    times: Callable[[np.ndarray], np.ndarray], n: int, rank: int, *, most: int | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Approximate leading eigenpairs of a symmetric positive semidefinite K, by subspace iteration.

    ``times(V)`` is ``K V`` for V (n, k), with no more columns than `most`, a bound on the rank of K; `seed`
    gives the directions to start from.

    Returns values (k,), not negative, in decreasing order, k at most `rank`; orthonormal vectors (n, k);
    and ``K vectors``. Three products with `rank` + 10 columns, and O(n rank^2).
    """
    width = min(n, rank + _EXTRA, n if most is None else most)
    Q = np.random.default_rng(seed).standard_normal((n, width))
    for _ in range(_ITERATIONS):
        Q = np.linalg.qr(times(Q))[0]
    products = times(Q)
    values, vectors = np.linalg.eigh(Q.T @ products)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    return np.maximum(values, 0.0), Q @ vectors, products @ vectors
