"""Lanczos steps on a complete grid without the directions that rounding makes of equal eigenvalues."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.linops.base import LinearOperator
from pymc_scalable_gp.linops.structured import Kronecker
from pymc_scalable_gp.methods.kmcg.basis import KrylovBasis, nonzero
from pymc_scalable_gp.methods.kmcg.kernel_operator import axis_kernel
from pymc_scalable_gp.methods.kmcg.kronecker import has_eigenbasis
from pymc_scalable_gp.ops.held import held
from pymc_scalable_gp.ops.lanczos import lanczos

# Eigenvalues that differ by less than this share of the largest are equal to rounding.
EQUAL = 1e-13


@dataclass(frozen=True, eq=False)
class Eigenspaces(LinearOperator):
    r"""``E' K E``, with a column of E for each distinct eigenvalue: the start's part in its eigenspace.

    Of an eigenspace, as of equal eigenvalues on a square grid, the Krylov space of a start b holds one
    direction. What rounding has of the others is orthogonal to no copy of itself in the basis, and grows by
    ``|l_k - alpha_j| / beta_j`` a step (Paige 1980), until the steps go through all eigenvalues again, at
    the mercy of the last digits. Steps of ``E' K E`` from ``E' b`` have the same alpha, beta and gradient,
    with E held fixed, and nowhere else to go. Of a vector's n places those behind the distinct eigenvalues
    are zero.
    """

    operator: LinearOperator  # K
    vectors: tuple[TensorVariable, ...]  # eigenvectors of the axes' kernel matrices
    share: TensorVariable  # (n,) the start in the eigenbasis, of unit length in each eigenspace
    place: TensorVariable  # (n,) place of each eigenvector's eigenspace

    @classmethod
    def of(cls, operator, kernels: Sequence[TensorVariable], start) -> "Eigenspaces":
        """For kernel matrices of the axes, up to a scale, and the start (n,) of the steps."""
        values, vectors = pt.ones(1), []
        for K in kernels:
            # Where the kernel is not finite its products are not, whatever the vectors.
            finite = held(pt.switch(pt.isfinite(K).all(), K, pt.eye(K.shape[0])))
            own, turned = pt.linalg.eigh(finite)
            values = (values[:, None] * own).ravel()
            vectors.append(pt.specify_shape(turned, K.type.shape))
        order = pt.argsort(values)
        ordered = values[order]
        apart = pt.concatenate([[0], pt.gt(pt.diff(ordered), EQUAL * ordered[-1]).astype("int64")])
        place = pt.zeros(values.shape, dtype="int64")[order].set(pt.cumsum(apart))
        along = Kronecker(vectors).T.matmat(held(start[:, None]))[:, 0]
        length = pt.sqrt(pt.zeros_like(along)[place].inc(along**2))[place]
        share = pt.switch(pt.gt(length, 0.0), along / length, 0.0)
        return cls(operator, tuple(vectors), share, place)

    @property
    def shape(self):
        """That of K: each vector has a place for each cell."""
        return self.operator.shape

    def matmat(self, V):
        """``E' K E V``, of which gradients hold E fixed."""
        turn, share = self._turn, disconnected_grad(self.share)[:, None]
        return self.part(self.operator.matmat(turn.matmat(share * V[self.place])))

    def part(self, V: TensorVariable) -> TensorVariable:
        """``E' V``."""
        along = self._turn.T.matmat(V) * disconnected_grad(self.share)[:, None]
        return pt.zeros_like(along)[self.place].inc(along)

    def diag(self):
        """Products with the unit vectors: for tests and small sizes."""
        return pt.diag(self.to_dense())

    @property
    def _turn(self):
        return Kronecker([disconnected_grad(each) for each in self.vectors])


def in_eigenspaces(basis: KrylovBasis, residual: TensorVariable) -> KrylovBasis:
    """The same steps in the eigenspaces of the kernel matrix, where it is decomposed; else `basis`.

    Their directions are coordinates in the eigenspaces, and serve for the density of the residual alone.
    """
    grid = basis.X.grid
    if grid is None or not has_eigenbasis(grid, basis.cov_func):
        return basis
    (term,) = product_terms(basis.cov_func, len(grid.axes))
    kernels = [axis_kernel(term, i, axis, axis) for i, axis in enumerate(grid.axes)]
    start = nonzero(pt.specify_shape(residual, (grid.n,)))
    operator = Eigenspaces.of(basis.operator, kernels, start)
    Q, alpha, beta = lanczos(operator, operator.part(start[:, None])[:, 0], basis.steps)
    return replace(basis, operator=operator, Q=Q, alpha=alpha, beta=beta)
