"""Least squares by a QR factor."""

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._jax import jax, jnp, register_jax
from pymc_scalable_gp.ops._kernels import invert_lower, qr_transposed
from pymc_scalable_gp.ops._numba import register_numba

# A diagonal entry of R below this share of the largest makes the columns dependent to rounding.
DEPENDENT = 1e-14


class QRSolve(Op):
    """Solution x (r, k), and ``R^{-1}`` transposed (r, r), of `qr_solve`."""

    __props__ = ()
    differentiable_outputs = (0,)

    def make_node(self, A, B):
        A, B = (pt.as_tensor_variable(a) for a in (A, B))
        A, B = (a if a.dtype == "float64" else a.astype("float64") for a in (A, B))
        if A.ndim != 2 or B.ndim != 2:
            raise TypeError("qr_solve needs a matrix (n, r), and a vector (n,) or matrix (n, k)")
        r, k = A.type.shape[1], B.type.shape[1]
        shapes = (r, k), (r, r)
        return Apply(self, [A, B], [pt.tensor(dtype="float64", shape=shape) for shape in shapes])

    def infer_shape(self, node, input_shapes):
        (_, r), (_, k) = input_shapes
        return [(r, k), (r, r)]

    def perform(self, node, inputs, output_storage):
        output_storage[0][0], output_storage[1][0] = _solve(*inputs)

    def pullback(self, inputs, outputs, cotangents):
        """``u = (A'A)^{-1} G``, ``dB = A u``, ``dA = (B - A x) u' - (A u) x'``."""
        (A, B), (g, _) = inputs, cotangents
        if isinstance(g.type, DisconnectedType):
            return [disconnected_type(), disconnected_type()]
        x, W = outputs
        u = W.T @ (W @ g)
        B_bar = A @ u
        return [(B - A @ x) @ u.T - B_bar @ x.T, B_bar]


def qr_solve(A, b):
    r"""Least-squares solution by a QR factor, ``argmin_x |A x - b|``.

    .. math:: [A\; b] = Q \begin{pmatrix} R & c \\ 0 & \rho \end{pmatrix}, \qquad x = R^{-1} c

    Parameters
    ----------
    A : tensor, shape (n, r)
        Of full column rank, with n at least r.
    b : tensor, shape (n,) or (n, k)

    Returns
    -------
    tensor, shape (r,) or (r, k)
        NaN where the columns of A are dependent. Differentiable in both.

    Notes
    -----
    O(n (r + k)^2). The normal equations, which square the condition number, are not formed: with
    ``A = [Phi; sigma I]`` and ``b = [y; 0]`` this is ridge regression on features, accurate in single
    precision where a Cholesky factor of ``Phi'Phi + sigma^2 I`` fails.

    References
    ----------
    .. [1] Golub, G. and Van Loan, C. (2013). Matrix Computations, 4th edition, section 5.3. Johns
       Hopkins University Press.
    """
    b = pt.as_tensor_variable(b)
    if b.ndim == 1:
        return QRSolve()(A, b[:, None])[0][:, 0]
    return QRSolve()(A, b)[0]


@register_jitable
def _solve(A, B):
    (n, r), k = A.shape, B.shape[1]
    x, W = np.full((r, k), np.nan), np.full((r, r), np.nan)
    if r == 0:
        return x, W
    if n < r:
        return x, W
    work = np.zeros((r + k, max(n, r + k)))
    work[:r, :n] = A.T
    work[r:, :n] = B.T
    if not np.isfinite(work).all():
        return x, W
    qr_transposed(work)
    lower = np.zeros((r, r))
    for i in range(r):
        lower[i, : i + 1] = work[i, : i + 1]
    size = np.abs(np.diag(lower))
    if size.min() <= DEPENDENT * size.max():
        return x, W
    invert_lower(lower)
    W[:] = lower
    x[:] = np.dot(lower.T, np.ascontiguousarray(work[r:, :r].T))
    return x, W


@register_numba(QRSolve)
def numba_qr_solve(op):
    @nb.numba_njit
    def solve(A, B):
        return _solve(A, B)

    return solve


@register_jax(QRSolve)
def jax_qr_solve(op):
    def forward(A, B):
        r, k = A.shape[1], B.shape[1]
        if A.shape[0] < r or r == 0:
            return jnp.full((r, k), jnp.nan), jnp.full((r, r), jnp.nan)
        Q, R = jnp.linalg.qr(A)
        size = jnp.abs(jnp.diag(R))
        R = jnp.where(size.min() <= DEPENDENT * size.max(), jnp.nan, R)
        x = jax.scipy.linalg.solve_triangular(R, Q.T @ B)
        return x, jax.scipy.linalg.solve_triangular(R.T, jnp.eye(r), lower=True)

    return forward
