"""Hadamard products of two low-rank matrices ``(A A') * (B B')``, through row-wise Kronecker products.

``A # B`` (n, a b) has the rows ``a_i (x) b_i``, so that ``(A A') * (B B') = (A # B)(A # B)'``. It is
never formed: with a core C (a, b, k) all that is needed are products of A with C (a, b k), row blocks at
a time.
"""

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._jax import jax, jax_form, jnp
from pymc_scalable_gp.ops._numba import in_numba, one_source

# Entries of the work array (block of rows, b k).
_ENTRIES = 2**18


class RowKroneckerApply(GufuncOp):
    """``(A # B) C`` (n, k)."""

    gufunc_signature = "(n,a),(n,b),(a,b,k)->(n,k)"

    def pullback(self, inputs, outputs, cotangents):
        """``dC = (A # B)' G``, and the rows' gradients."""
        (A, B, C), (g,) = inputs, cotangents
        return [*RowKroneckerRows()(A, B, C, g), RowKroneckerProject()(A, B, g)]


class RowKroneckerProject(GufuncOp):
    """``(A # B)' G`` as a core (a, b, k)."""

    gufunc_signature = "(n,a),(n,b),(n,k)->(a,b,k)"

    def pullback(self, inputs, outputs, cotangents):
        """``dG = (A # B) C``, and the rows' gradients, with C the cotangent."""
        (A, B, G), (c,) = inputs, cotangents
        return [*RowKroneckerRows()(A, B, c, G), RowKroneckerApply()(A, B, c)]


class RowKroneckerRows(GufuncOp):
    """Gradients of ``sum(G * ((A # B) C))`` in A and B. It has none itself."""

    gufunc_signature = "(n,a),(n,b),(a,b,k),(n,k)->(n,a),(n,b)"


def row_kronecker_apply(A, B, C):
    r"""Product of a row-wise Kronecker product with a core, ``out_ik = sum_ab A_ia B_ib C_abk``.

    Parameters
    ----------
    A : tensor, shape (n, a)
    B : tensor, shape (n, b)
    C : tensor, shape (a, b, k)

    Returns
    -------
    tensor, shape (n, k)
        Differentiable once in all three.

    Notes
    -----
    O(n a b k) as matrix products; memory beyond the result is that of one block of rows.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A, B = np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([[2.0], [3.0]])
    >>> C = np.array([[[1.0]], [[2.0]]])
    >>> sgp.ops.row_kronecker_apply(A, B, C).eval()
    array([[ 2.],
           [15.]])
    >>> np.einsum("ia,ib,abk->ik", A, B, C)
    array([[ 2.],
           [15.]])
    """
    return RowKroneckerApply()(A, B, C)


def row_kronecker_project(A, B, G):
    """Transpose of :func:`row_kronecker_apply`: ``C_abk = sum_i A_ia B_ib G_ik`` for G (n, k).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A, B = np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([[2.0], [3.0]])
    >>> sgp.ops.row_kronecker_project(A, B, np.ones((2, 1))).eval().ravel()
    array([5., 6.])
    >>> np.einsum("ia,ib->ab", A, B).ravel()
    array([5., 6.])
    """
    return RowKroneckerProject()(A, B, G)


def hadamard_matvec(A, B, v):
    r"""Product of the Hadamard product ``(A A') * (B B')`` with a vector or a matrix.

    .. math:: \big[(A A^\top \circ B B^\top) v\big]_i = a_i^\top M\, b_i, \qquad M = A^\top D_v B

    Parameters
    ----------
    A : tensor, shape (n, a)
    B : tensor, shape (n, b)
        Roots of the two matrices.
    v : tensor, shape (n,) or (n, k)

    Returns
    -------
    tensor, of the shape of `v`
        Differentiable once in all three.

    Notes
    -----
    O(n a b) for each column; nothing of size n x n or n x a b.

    References
    ----------
    .. [1] Gardner, J. et al. (2018). Product Kernel Interpolation for Scalable Gaussian Processes.
       https://doi.org/10.48550/arXiv.1802.08903

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A, B, v = np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]]), np.ones(2)
    >>> sgp.ops.hadamard_matvec(A, B, v).eval()
    array([ 7., 42.])
    >>> ((A @ A.T) * (B @ B.T)) @ v
    array([ 7., 42.])
    """
    v = pt.as_tensor_variable(v)
    if v.ndim not in (1, 2):
        raise ValueError(f"v must have shape (n,) or (n, k), got {v.ndim} dimensions")
    G = v[:, None] if v.ndim == 1 else v
    out = row_kronecker_apply(A, B, row_kronecker_project(A, B, G))
    return out[:, 0] if v.ndim == 1 else out


@register_jitable
def _block(width):
    return max(16, _ENTRIES // max(width, 1))


@one_source(RowKroneckerApply)
def apply_rows(A, B, C):
    (n, a), b, k = A.shape, B.shape[1], C.shape[2]
    out, flat = np.zeros((n, k)), C.reshape((a, b * k))
    size = _block(b * k)
    if a == 0:
        return out
    for start in range(0, n, size):
        stop = min(start + size, n)
        T = np.dot(np.ascontiguousarray(A[start:stop]), flat)
        _combine(B[start:stop], T, out[start:stop])
    return out


def _combine(B, T, out):
    """``out_ik += sum_b B_ib T_i,bk``."""
    out += np.einsum("nb,nbk->nk", B, T.reshape((*B.shape, out.shape[1])))


@in_numba(_combine)
def _combine_numba(B, T, out):
    (n, b), k = B.shape, out.shape[1]
    for i in range(n):
        if k == 1:  # a product with a vector: one sum, which the compiler vectorises
            total = 0.0
            for j in range(b):
                total += B[i, j] * T[i, j]
            out[i, 0] += total
            continue
        for j in range(b):
            for c in range(k):
                out[i, c] += B[i, j] * T[i, j * k + c]


def _outer(B, G):
    """``b_i (x) g_i`` (rows, b k)."""
    return (B[:, :, None] * G[:, None, :]).reshape((len(B), B.shape[1] * G.shape[1]))


@in_numba(_outer)
def _outer_numba(B, G):
    (n, b), k = B.shape, G.shape[1]
    U = np.empty((n, b * k))
    if k == 1:
        return B * G
    for i in range(n):
        for j in range(b):
            for c in range(k):
                U[i, j * k + c] = B[i, j] * G[i, c]
    return U


def _contract(T, G, out):
    """``out_ib = sum_k T_i,bk G_ik``."""
    out[:] = np.einsum("nbk,nk->nb", T.reshape((*out.shape, G.shape[1])), G)


@in_numba(_contract)
def _contract_numba(T, G, out):
    (n, b), k = out.shape, G.shape[1]
    for i in range(n):
        for j in range(b):
            total = 0.0
            for c in range(k):
                total += T[i, j * k + c] * G[i, c]
            out[i, j] = total


@one_source(RowKroneckerProject)
def project_rows(A, B, G):
    (n, a), b, k = A.shape, B.shape[1], G.shape[1]
    out = np.zeros((a, b * k))
    size = _block(b * k)
    if a * b * k == 0:
        return out.reshape((a, b, k))
    for start in range(0, n, size):
        stop = min(start + size, n)
        U = _outer(B[start:stop], G[start:stop])
        out += np.dot(np.ascontiguousarray(A[start:stop]).T, U)
    return out.reshape((a, b, k))


@one_source(RowKroneckerRows)
def rows_gradient(A, B, C, G):
    (n, a), b, k = A.shape, B.shape[1], C.shape[2]
    dA, dB = np.zeros((n, a)), np.zeros((n, b))
    flat = C.reshape((a, b * k))
    size = _block(b * k)
    if a * b * k == 0:
        return dA, dB
    for start in range(0, n, size):
        stop = min(start + size, n)
        g = G[start:stop]
        dA[start:stop] = np.dot(_outer(B[start:stop], g), flat.T)
        T = np.dot(np.ascontiguousarray(A[start:stop]), flat)
        _contract(T, g, dB[start:stop])
    return dA, dB


@jax_form(RowKroneckerApply)
def _jax_apply(A, B, C):
    (n, a), (b, k) = A.shape, C.shape[1:]
    flat, count = C.reshape((a, b * k)), max(1, -(-n // _block(b * k)))
    size = max(1, -(-n // count))

    @jax.checkpoint
    def block(pair):
        A, B = pair
        return jnp.einsum("nb,nbk->nk", B, (A @ flat).reshape((-1, b, k)))

    # Blocks have one size: the last is filled up with rows of zeros.
    rows = [jnp.pad(x, ((0, -n % size), (0, 0))).reshape((-1, size, x.shape[1])) for x in (A, B)]
    return jax.lax.map(block, rows).reshape((-1, k))[:n]


@jax_form(RowKroneckerProject)
def _jax_project(A, B, G):
    core = jnp.zeros((A.shape[1], B.shape[1], G.shape[1]))
    return jax.vjp(lambda C: _jax_apply(A, B, C), core)[1](G)[0]


@jax_form(RowKroneckerRows, differentiable=False)
def _jax_rows(A, B, C, G):
    return jax.vjp(lambda A, B: _jax_apply(A, B, C), A, B)[1](G)
