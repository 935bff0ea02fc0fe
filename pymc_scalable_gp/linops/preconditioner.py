"""A frozen preconditioner for matrices that are the identity plus something of quickly falling spectrum."""

from dataclasses import dataclass

import numpy as np

from pymc_scalable_gp.utils.subspace import leading_eigenpairs


def root_inverse(V, vectors, shrinkage):
    """``P^{-1/2} V`` of `LowRankPreconditioner`, for arrays or tensors V (n, k) or (n,)."""
    return V - vectors @ ((vectors.T @ V).T * shrinkage).T


@dataclass(frozen=True)
class LowRankPreconditioner:
    r"""``P = I + Q diag(lambda) Q'`` with orthonormal Q, for matrices close to ``I + A``.

    Its inverse root is applied on both sides, so that the matrix stays symmetric:

    .. math:: P^{-1/2} = I - Q\,\mathrm{diag}\big(1 - (1 + \lambda)^{-1/2}\big)\,Q^\top

    Parameters
    ----------
    vectors : array, shape (n, k)
        Q: leading eigenvectors of A, or anything close to them.
    values : array, shape (k,)
        lambda, not negative.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> F = np.array([[1.0], [2.0]])
    >>> P = sgp.linops.LowRankPreconditioner.from_factor(F)
    >>> print(round(P.logdet, 4), np.log(6.0).round(4))
    1.7918 1.7918
    >>> root = P.root_inverse(np.eye(2))
    >>> np.allclose(root @ (np.eye(2) + F @ F.T) @ root, np.eye(2))
    True
    """

    vectors: np.ndarray
    values: np.ndarray

    @classmethod
    def from_factor(cls, factor: np.ndarray) -> "LowRankPreconditioner":
        """``I + F F'`` itself, for a factor F (n, k): features over the noise's sd, for instance."""
        vectors, singular, _ = np.linalg.svd(factor, full_matrices=False)
        return cls(vectors, singular**2)

    @classmethod
    def from_products(cls, times, n: int, rank: int, seed: int = 0) -> "LowRankPreconditioner":
        """Leading eigenpairs of A from ``times(V) = A V``, by subspace iteration."""
        values, vectors, _ = leading_eigenpairs(times, n, rank, seed=seed)
        return cls(vectors, values)

    @property
    def shrinkage(self) -> np.ndarray:
        """``1 - (1 + lambda)^(-1/2)`` (k,)."""
        return 1.0 - 1.0 / np.sqrt(1.0 + self.values)

    @property
    def logdet(self) -> float:
        """``log|P|``."""
        return float(np.log1p(self.values).sum())

    def root_inverse(self, V):
        """``P^(-1/2) V`` for V (n, k) or (n,)."""
        return root_inverse(V, self.vectors, self.shrinkage)
