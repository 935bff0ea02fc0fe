"""Least squares by a QR factor."""

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import SymbolicOp
from pytensor.gradient import disconnected_type
from pytensor.tensor.linalg import qr, solve_triangular

from pymc_scalable_gp.ops.stacked_product import product

# A column is dependent on those before, to rounding, that leave no more than this share of its norm.
DEPENDENT = 1e-13


class NormalSolve(SymbolicOp):
    """``U = (A'A)^-1 G`` by the factor R of A, whose own part in the gradient that of A has."""

    inline = True

    def build_inner_graph(self, A, R, G):
        return [solve_triangular(R, solve_triangular(R, G, trans="T"))]

    def connection_pattern(self, node=None):
        return [[True], [False], [True]]

    def pullback(self, inputs, outputs, cotangents):
        """``G_bar = V = (A'A)^-1 U_bar`` and ``A_bar = -A (U V' + V U')``."""
        (A, R, _), (U,), (bar,) = inputs, outputs, cotangents
        V = NormalSolve()(A, R, bar)
        half = product(U, V, transpose_b=True)
        return [-product(A, half + half.T), disconnected_type(), V]


class LeastSquares(SymbolicOp):
    """Solution X of ``A X = B`` by the factors of A, whose own part in the gradient that of A has."""

    inline = True

    def build_inner_graph(self, A, B, Q, R):
        X = solve_triangular(R, product(Q, B, transpose_a=True))
        rest = product(A, B - product(A, X), transpose_a=True)  # zero to rounding: a step of refinement
        return [X + solve_triangular(R, solve_triangular(R, rest, trans="T"))]

    def connection_pattern(self, node=None):
        return [[True], [True], [False], [False]]

    def pullback(self, inputs, outputs, cotangents):
        """``B_bar = A U`` and ``A_bar = (B - A X) U' - A U X'``, with ``U = (A'A)^-1 X_bar``."""
        (A, B, _, R), (X,), (bar,) = inputs, outputs, cotangents
        U = NormalSolve()(A, R, bar)
        B_bar, none = product(A, U), disconnected_type()
        rest = product(B - product(A, X), U, transpose_b=True)
        return [rest - product(B_bar, X, transpose_b=True), B_bar, none, none]


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
        NaN where the columns of A are dependent. Differentiable in both, any number of times.

    Raises
    ------
    TypeError
        If A is not a matrix, b neither a vector nor a matrix, or their numbers of rows differ.

    Notes
    -----
    O(n r (r + k)). The normal equations, which square the condition number, are not formed: with
    ``A = [Phi; sigma I]`` and ``b = [y; 0]`` this is ridge regression on features, accurate in single
    precision where a Cholesky factor of ``Phi'Phi + sigma^2 I`` fails.

    The last term is zero to rounding: a step of refinement. No derivative of the factor is taken, that
    of the solution is ``(A'A)^{-1} (dA' (b - A x) + A' (db - dA x))`` (PyTensor 3.3 has none of the
    factor where the number of rows is unknown).

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
    rows = A.type.shape[0], b.type.shape[0]
    if None not in rows and len(set(rows)) > 1:
        raise TypeError(f"qr_solve: A has {rows[0]} rows, and b has {rows[1]}")
    if b.ndim == 1:
        return qr_solve(A, b[:, None])[:, 0]
    r, k = A.shape[1], b.shape[1]
    # Rows of zeros change nothing, and A never has fewer rows than columns.
    tall, right = pt.concatenate([A, pt.zeros((r, r))]), pt.concatenate([b, pt.zeros((r, k))])
    Q, R = qr(tall, mode="economic")
    left, size = pt.abs(pt.diag(R)), pt.sqrt((R**2).sum(axis=0))
    R = pt.switch(pt.any(left <= DEPENDENT * size), np.nan, R)
    return LeastSquares()(tall, right, Q, R)
