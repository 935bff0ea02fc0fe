"""Least squares by a QR factor."""

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.linalg import qr, solve_triangular

from pymc_scalable_gp.ops.stacked_product import product

# A diagonal entry of R below this share of their sum makes the columns dependent to rounding.
DEPENDENT = 1e-14


def qr_solve(A, b):
    r"""Least-squares solution by a QR factor, ``argmin_x |A x - b|``.

    .. math:: A = Q R, \qquad x_0 = R^{-1} Q^\top b, \qquad
              x = x_0 + R^{-1} R^{-\top} A^\top (b - A x_0)

    Parameters
    ----------
    A : tensor, shape (n, r)
        Of full column rank, with n at least r.
    b : tensor, shape (n,) or (n, k)

    Returns
    -------
    tensor, shape (r,) or (r, k)
        NaN where the columns of A are dependent. Differentiable once in both.

    Raises
    ------
    TypeError
        If A is not a matrix, or b neither a vector nor a matrix.

    Notes
    -----
    O(n r (r + k)). The normal equations, which square the condition number, are not formed: with
    ``A = [Phi; sigma I]`` and ``b = [y; 0]`` this is ridge regression on features, accurate in single
    precision where a Cholesky factor of ``Phi'Phi + sigma^2 I`` fails.

    The last term is zero to rounding: a step of refinement. With `x_0` and R held fixed its
    derivative ``(A'A)^{-1} (dA' (b - A x_0) + A' (db - dA x_0))`` is that of the solution, and no
    derivative of the factor is taken (PyTensor 3.3 has none where the number of rows is unknown).

    References
    ----------
    .. [1] Golub, G. and Van Loan, C. (2013). Matrix Computations, 4th edition, section 5.3. Johns
       Hopkins University Press.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A, b = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 2.0, 2.0])
    >>> sgp.ops.qr_solve(A, b).eval().round(3)
    array([1.167, 0.5  ])
    >>> np.linalg.lstsq(A, b)[0].round(3)
    array([1.167, 0.5  ])
    """
    A, b = (pt.as_tensor_variable(a).astype("float64") for a in (A, b))
    if A.ndim != 2 or b.ndim not in (1, 2):
        raise TypeError(
            "qr_solve needs a matrix (n, r), and a vector (n,) or matrix (n, k); "
            f"got {A.ndim} and {b.ndim} dimensions"
        )
    if b.ndim == 1:
        return qr_solve(A, b[:, None])[:, 0]
    r, k = A.shape[1], b.shape[1]
    # Rows of zeros change nothing, and A never has fewer rows than columns.
    tall, right = pt.concatenate([A, pt.zeros((r, r))]), pt.concatenate([b, pt.zeros((r, k))])
    Q, R = qr(disconnected_grad(tall), mode="economic")
    size = pt.abs(pt.diag(R))
    R = pt.switch(pt.any(size <= DEPENDENT * size.sum()), np.nan, R)
    x = solve_triangular(R, product(Q, disconnected_grad(right), transpose_a=True))
    step = solve_triangular(R, product(A, b - product(A, x), transpose_a=True), trans="T")
    return x + solve_triangular(R, step)
