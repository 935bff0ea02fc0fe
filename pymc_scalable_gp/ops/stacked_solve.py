"""Solutions of stacked lower-triangular systems, ``X_i = op(L_i)^{-1} B_i``."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._elementwise import fill_from
from pymc_scalable_gp.ops._jax import jax, jax_form, jnp
from pymc_scalable_gp.ops._kernels import solve_lower
from pymc_scalable_gp.ops._numba import one_source
from pymc_scalable_gp.ops.stacked_product import stacked_product


class StackedSolve(GufuncOp):
    """Stack of triangular solutions (see `stacked_solve`)."""

    __props__ = ("transpose",)
    transpose = False
    gufunc_signature = "(d,m,m),(d,m,k)->(d,m,k)"

    def pullback(self, inputs, outputs, cotangents):
        """``dB = op(L)^{-T} dX`` and ``dL = -tril(dB X')``, or ``-tril(X dB')`` where op transposes."""
        (L, _), (X,), (g,) = inputs, outputs, cotangents
        back = StackedSolve(not self.transpose)(L, g)
        pair = (X, back) if self.transpose else (back, X)
        place = pt.arange(L.shape[1])
        lower = pt.ge(place[:, None], place[None, :])
        return [-stacked_product(*pair, transpose_b=True) * lower, back]


def stacked_solve(lower, right, *, transpose: bool = False):
    """Solutions X of ``L X = B`` or, with `transpose`, of ``L' X = B``.

    Parameters
    ----------
    lower : tensor, shape (d, m, m)
        L; what is above its diagonal is not read.
    right : tensor, shape (d, m, k)
        B; O(d m^2 k) time.
    transpose : bool
        Whether the systems are those of the transposes.

    Returns
    -------
    tensor, shape (d, m, k)
        NaN for a matrix with a zero on its diagonal.

    Notes
    -----
    ``pt.linalg.solve_triangular`` and its gradient, which Numba takes far longer to compile in
    PyTensor 3.3.

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
    return StackedSolve(bool(transpose))(lower, right)


def lower_solve(lower, right, *, transpose: bool = False):
    """`stacked_solve` for one matrix (m, m) and right-hand sides (m, k) or (m,)."""
    lower, right = pt.as_tensor(lower), pt.as_tensor(right)
    if right.ndim == 1:
        return lower_solve(lower, right[:, None], transpose=transpose)[:, 0]
    return stacked_solve(lower[None], right[None], transpose=transpose)[0]


@one_source(StackedSolve)
def _solutions(lower, right, transpose):
    out = np.empty(right.shape)
    for i in range(len(lower)):
        singular = False
        for j in range(right.shape[1]):
            fill_from(out[i, j], right[i, j])
            singular = singular or lower[i, j, j] == 0.0
        if singular:
            out[i] = np.nan
        else:
            solve_lower(lower[i], out[i], transpose, False)
    return out


@jax_form(StackedSolve)
def _jax_solutions(lower, right, transpose):
    singular = (jnp.diagonal(lower, axis1=1, axis2=2) == 0.0).any(axis=1)
    found = jax.scipy.linalg.solve_triangular(lower, right, lower=True, trans="T" if transpose else "N")
    return jnp.where(singular[:, None, None], jnp.nan, found)
