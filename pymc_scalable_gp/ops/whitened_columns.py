"""Root of a Nystrom approximation, ``M L^{-T}`` with ``L L' = G'M`` and M = K G."""

import numpy as np

from pymc_scalable_gp.ops.stacked_cholesky import factor_inverses, inverse_cholesky
from pymc_scalable_gp.ops.stacked_product import product


def whitened_columns(M, G, jitter: float = 1e-10):
    r"""Root of the best approximation of a matrix K in the space of given directions G.

    .. math:: U U^\top = M\,(S + \epsilon\,\mathrm{tr}(S)\, I)^{-1} M^\top, \qquad M = K G,\; S = G^\top M

    Parameters
    ----------
    M : tensor, shape (m, r)
        K G, with K symmetric and positive semidefinite; or ``F'G`` for ``K = F F'``, and then
        `G` is M itself and ``F U`` the root.
    G : tensor, shape (m, r)
    jitter : float
        Epsilon.

    Returns
    -------
    U : tensor, shape (m, r)
        NaN where the factorisation fails. Differentiable once in both.

    Notes
    -----
    O(m r^2 + r^3). K is not exceeded: ``K - U U'`` is positive semidefinite.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> K, G = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[1.0], [0.0]])
    >>> U = sgp.ops.whitened_columns(K @ G, G).eval()
    >>> (U @ U.T).round(3)
    array([[2. , 1. ],
           [1. , 0.5]])
    """
    inner = product(G, M, transpose_a=True)
    return product(M, inverse_cholesky(inner[None], jitter)[0], transpose_b=True)


def whiten(M, G, jitter):
    """Value of `whitened_columns`, of arrays."""
    return M @ factor_inverses((np.transpose(G) @ M)[None], jitter)[0].T
