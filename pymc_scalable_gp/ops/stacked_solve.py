"""Solutions of stacked lower-triangular systems, ``X_i = op(L_i)^{-1} B_i``."""

import pytensor.tensor as pt


def stacked_solve(lower, right, *, transpose: bool = False):
    """Solutions X of ``L X = B`` or, with `transpose`, of ``L' X = B``.

    Parameters
    ----------
    lower : tensor, shape (d, m, m)
        L; what is above its diagonal is not read.
    right : tensor, shape (d, m, k)
        B; O(d m^2 k) time.

    Returns
    -------
    tensor, shape (d, m, k)
        NaN for a matrix with a zero on its diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> lower, right = np.array([[[2.0, 0.0], [1.0, 2.0]]]), np.array([[[2.0], [5.0]]])
    >>> sgp.ops.stacked_solve(lower, right).eval()[0]
    array([[1.],
           [2.]])
    >>> np.linalg.solve(lower[0], right[0])
    array([[1.],
           [2.]])
    """
    lower, right = (pt.as_tensor(x).astype("float64") for x in (lower, right))
    if lower.ndim == 3 and lower.type.shape[0] == 1:  # Numba compiles loops over stacks for long
        return lower_solve(lower[0], right[0], transpose=transpose)[None]
    if transpose:
        lower = lower.swapaxes(-1, -2)
    return pt.linalg.solve_triangular(lower, right, lower=not transpose, b_ndim=2)


def lower_solve(lower, right, *, transpose: bool = False):
    """`stacked_solve` for one matrix (m, m) and right-hand sides (m, k) or (m,)."""
    right = pt.as_tensor(right)
    if right.ndim == 1:
        return stacked_solve(lower, right[:, None], transpose=transpose)[:, 0]
    return stacked_solve(lower, right, transpose=transpose)
