"""Eigendecomposition of small symmetric matrices with a gradient that survives degeneracy."""

import numpy as np
import pytensor.tensor as pt
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._base import GufuncOp, connected
from pymc_scalable_gp.ops._jax import jnp, register_jax
from pymc_scalable_gp.ops._numba import register_numba
from pymc_scalable_gp.ops.stacked_product import stacked_product

# Pairs closer than this share of the larger eigenvalue count as equal: any rotation between them
# leaves an invariant function of the pair unchanged, and the true term of its gradient is 0 / 0.
SEPARATION = 1e-9


class EighSorted(GufuncOp):
    """Stacked symmetric eigendecompositions, largest first (docstring of `eigh_sorted`)."""

    gufunc_signature = "(d,m,m)->(d,m),(d,m,m)"

    def perform(self, node, inputs, output_storage):
        values, vectors = _eigh_sorted(inputs[0])
        output_storage[0][0], output_storage[1][0] = values, vectors

    def pullback(self, inputs, outputs, cotangents):
        r"""``dK = Q (diag(dl) + G o (Q' dQ)) Q'`` with ``G_ab = 1/(l_b - l_a)`` for separated pairs."""
        values, vectors = outputs
        values_bar, vectors_bar = cotangents
        inner = pt.zeros_like(vectors)
        if connected(vectors_bar):
            gap = values[:, None, :] - values[:, :, None]
            scale = pt.maximum(pt.abs(values[:, None, :]), pt.abs(values[:, :, None]))
            apart = pt.abs(gap) > SEPARATION * scale
            gain = pt.switch(apart, 1.0 / pt.switch(apart, gap, 1.0), 0.0)
            inner = gain * stacked_product(vectors, vectors_bar, transpose_a=True)
        if connected(values_bar):
            inner = inner + values_bar[:, :, None] * pt.eye(values.shape[1])
        bar = stacked_product(stacked_product(vectors, inner), vectors, transpose_b=True)
        return [0.5 * (bar + bar.transpose(0, 2, 1))]


def eigh_sorted(matrices):
    r"""Eigenvalues and eigenvectors of symmetric matrices, in decreasing order.

    Parameters
    ----------
    matrices : tensor, shape (d, m, m)
        Symmetric; O(d m^3) time.

    Returns
    -------
    values : tensor, shape (d, m)
    vectors : tensor, shape (d, m, m)
        One eigenvector a column. Signs: the first entry is not negative, which is continuous in
        the parameters of a totally positive kernel on an ordered grid (ExpQuad, Matern-1/2, ...).
        A matrix with a non-finite entry gives NaN.

    Notes
    -----
    The gradient is the textbook one (Giles 2008) with the coupling of eigenvalues that agree
    within ``SEPARATION`` set to zero, and is symmetric. For functions that do not depend on the
    basis inside a degenerate eigenspace this is exact.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> values, vectors = sgp.ops.eigh_sorted(np.array([[[2.0, 1.0], [1.0, 2.0]]]))
    >>> values.eval().round(3)
    array([[3., 1.]])
    >>> vectors.eval().round(3)
    array([[[ 0.707,  0.707],
            [ 0.707, -0.707]]])
    """
    return EighSorted()(matrices)


def _eigh_sorted(matrices):
    d, m = matrices.shape[0], matrices.shape[1]
    values, vectors = np.full((d, m), np.nan), np.full((d, m, m), np.nan)
    for i in range(d):
        if not np.isfinite(np.sum(matrices[i])):
            continue
        w, q = np.linalg.eigh(np.ascontiguousarray(matrices[i]))
        for j in range(m):
            source = m - 1 - j
            sign = -1.0 if q[0, source] < 0.0 else 1.0
            values[i, j] = w[source]
            for k in range(m):
                vectors[i, k, j] = sign * q[k, source]
    return values, vectors


@register_numba(EighSorted)
def numba_eigh_sorted(op):
    return nb.numba_njit(_eigh_sorted)


@register_jax(EighSorted)
def jax_eigh_sorted(op):
    def forward(matrices):
        values, vectors = jnp.linalg.eigh(matrices)
        values, vectors = values[:, ::-1], vectors[:, :, ::-1]
        return values, vectors * jnp.where(vectors[:, :1] < 0.0, -1.0, 1.0)

    return forward
