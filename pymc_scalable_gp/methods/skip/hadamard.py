"""SKIP's Gaussian likelihood from products alone: what is frozen, and the posterior."""

from dataclasses import dataclass, replace
from itertools import batched

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.likelihoods.base import FullRows, Likelihood, MarginalData
from pymc_scalable_gp.linops.krylov import cg_residuals
from pymc_scalable_gp.linops.preconditioner import LowRankPreconditioner
from pymc_scalable_gp.methods.skip.product_normal import ProductNormal, start
from pymc_scalable_gp.ops.hadamard import apply_rows, project_rows, row_kronecker_project
from pymc_scalable_gp.ops.no_gradient import no_gradient
from pymc_scalable_gp.ops.stacked_cholesky import cholesky
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.ops.stacked_solve import lower_solve
from pymc_scalable_gp.utils.compiled import evaluate, evaluate_at
from pymc_scalable_gp.utils.jitter import KRYLOV_JITTER

_NO_GRADIENT = (
    "predictions of SKIPMarginal(n_iter=...) have no gradient: add gp.conditional after pm.sample or "
    "pm.find_MAP, or leave n_iter out"
)


@dataclass(frozen=True, eq=False)
class HadamardProducts(Likelihood):
    """A likelihood that needs products with the covariance alone, and what is frozen for them."""

    data: MarginalData
    preconditioner: LowRankPreconditioner
    probes: np.ndarray
    steps: int

    path = "products"
    subsets_share_features = False

    @classmethod
    def of(cls, data: MarginalData, steps: int, probes, rank: int) -> "HadamardProducts":
        """With a preconditioner frozen at the point where the features' directions were."""
        roots = training_roots(data)
        *roots, variance = evaluate(
            [*roots, diagonal_beside(data, roots, data.sigma**2)[0]], data.feature_map.point
        )
        scale = 1.0 / np.sqrt(variance)[:, None]
        scaled = [(scale * A, B) for A, B in batched(roots, 2, strict=True)]

        def times(V):
            return sum(apply_rows(A, B, project_rows(A, B, V)) for A, B in scaled)

        frozen = LowRankPreconditioner.from_products(times, len(variance), rank)
        return cls(data, frozen, probes, steps)

    def given(self, X, y, sigma):
        """The likelihood of those rows, with a preconditioner and probes for them."""
        signs = np.random.default_rng(0).integers(0, 2, (len(self.probes), X.value.shape[0]))
        data, rank = replace(self.data, X=X, y=y, sigma=sigma), len(self.preconditioner.values)
        return self.of(data, min(self.steps, data.size), 2.0 * signs - 1.0, rank)

    def normal(self, noise):
        roots = training_roots(self.data)
        variance, penalty = diagonal_beside(self.data, roots, noise)
        return ProductNormal.of(
            self.data.mean, roots, variance, self.preconditioner, self.probes, self.steps, penalty
        )

    def _start(self, target=None, noise=None):
        """Preconditioned operator, residual, and what Lanczos steps make of both."""
        target, noise = self.handed(target, noise)
        normal = self.normal(noise)
        operator, residual = normal.operator, target - normal.mean
        return operator, residual, start(operator, residual, self.steps)

    def coefficients(self, target=None, noise=None) -> Coefficients:
        r"""Posterior in the span V of the preconditioner's vectors and the Krylov basis (Galerkin).

        ``(I + F F')^{-1}`` with ``F = D^{-1/2} Phi`` becomes ``V (V'V + V'F F'V)^{-1} V'``, which is never
        above it: with ``G = F'V L^{-T}`` the coefficients have mean ``G L^{-1} V' D^{-1/2} (y - mu)`` and
        covariance ``I - G G'``.
        """
        operator, residual, (Q, *_) = self._start(target, noise)
        scale, krylov = operator.scale, operator.root_inverse(Q[:, : self.steps])
        V = pt.concatenate([operator.vectors, krylov], axis=1)
        pairs = batched(operator.roots, 2, strict=True)
        cores = [row_kronecker_project(A, B, scale[:, None] * V) for A, B in pairs]
        F = pt.concatenate([core.reshape((-1, V.shape[1])) for core in cores])  # (r, k)
        H = product(V, V, transpose_a=True) + product(F, F, transpose_a=True)
        jitter = KRYLOV_JITTER * pt.trace(H)
        L = cholesky(H + jitter * pt.eye(H.shape[0]))
        G = lower_solve(L, F.T).T
        inner = lower_solve(L, product(V, scale * residual, transpose_a=True))
        # Where the two parts of V overlap, derivatives would lose all digits: none are given instead.
        mean, root = (no_gradient(x, _NO_GRADIENT) for x in (product(G, inner), G))
        return Coefficients(mean, root, downdates=True)

    def precisions(self, model):
        return FullRows(self.data).precisions(model)

    def figures(self, points, model=None):
        """``residual`` of conjugate gradients after all steps, relative to the targets."""
        *_, (_, _, alpha, beta) = self._start()
        runs = evaluate_at([alpha, beta], points, model)
        return {"residual": float(np.max([cg_residuals(*run)[-1] for run in runs]))}


def training_roots(data) -> list:
    """A_1, B_1, A_2, ... at the training rows; a term with one factor gets a column of ones."""
    found = []
    for each in data.feature_map.roots(data.X.tensor):
        ones = pt.ones((data.size, 1))
        found += [each.A, ones if each.B is None else each.B]
    return [pt.specify_shape(root, (data.size, None)) for root in found]


def diagonal_beside(data, roots, noise):
    """Variances D (n,) beside the products, and what the bound of "VFE" takes off."""
    pairs = batched(roots, 2, strict=True)
    low = sum((A**2).sum(axis=1) * (B**2).sum(axis=1) for A, B in pairs)
    kdiag = data.feature_map.kernel_diag(data.X.tensor)
    return data.corrected(pt.maximum(kdiag - low, 0.0), noise)
