"""Products of stacked matrices, ``out_i = op(A_i) op(B_i)``."""

import pytensor.tensor as pt


def stacked_product(a, b, *, transpose_a: bool = False, transpose_b: bool = False):
    """Matrix products ``op(a[i]) @ op(b[i])`` of two stacks.

    Parameters
    ----------
    a, b : tensors, shapes (d, p, m) and (d, m, q), or with the last two transposed
        As told by `transpose_a` and `transpose_b`.

    Returns
    -------
    tensor, shape (d, p, q)

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> a = np.array([[[0.0, 1.0], [2.0, 3.0]]])
    >>> sgp.ops.stacked_product(a, a, transpose_b=True).eval()
    array([[[ 1.,  3.],
            [ 3., 13.]]])
    >>> a[0] @ a[0].T
    array([[ 1.,  3.],
           [ 3., 13.]])
    """
    a, b = (pt.as_tensor(x).astype("float64") for x in (a, b))
    if a.ndim == b.ndim == 3 and 1 in (a.type.shape[0], b.type.shape[0]):
        # Numba compiles a product of two matrices in a third of the time of one of stacks.
        return product(a[0], b[0], transpose_a=transpose_a, transpose_b=transpose_b)[None]
    return pt.matmul(
        a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b
    )


def product(a, b, *, transpose_a: bool = False, transpose_b: bool = False):
    """As `stacked_product`, for two matrices or for a matrix (p, m) and a vector (m,)."""
    return stacked_product(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
