"""SKIP's Gaussian likelihood by products alone: what is frozen, and the posterior that follows."""

from dataclasses import dataclass, replace

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_scalable_gp.core.coefficients import Coefficients
from pymc_scalable_gp.core.conditioned import MarginalFit
from pymc_scalable_gp.linops.krylov import cg_residuals
from pymc_scalable_gp.linops.preconditioner import LowRankPreconditioner
from pymc_scalable_gp.methods.kmcg.features import JITTER
from pymc_scalable_gp.methods.skip.product_normal import ProductNormal, WhitenedProducts, start
from pymc_scalable_gp.ops.hadamard import apply_rows, project_rows, row_kronecker_project
from pymc_scalable_gp.utils.evaluate import evaluate


@dataclass(frozen=True)
class ProductFit(MarginalFit):
    """A marginal fit whose covariance is used through products, with all that is frozen for them."""

    preconditioner: LowRankPreconditioner | None = None
    probes: np.ndarray | None = None
    steps: int = 0

    @property
    def roots(self) -> list:
        """A_1, B_1, A_2, ... at the training rows; a term with one factor gets a column of ones."""
        X, found = self.X.tensor, []
        for each in self.gp._map.roots(X):
            ones = pt.ones((self.X.value.shape[0], 1))
            found += [each.A, ones if each.B is None else each.B]
        rows = (self.X.value.shape[0], None)
        return [pt.specify_shape(root, rows) for root in found]

    def diagonal(self, roots):
        """Variances D (n,) beside the products, and what the bound of "VFE" takes off."""
        pairs = zip(roots[::2], roots[1::2], strict=True)
        low = sum((A**2).sum(axis=1) * (B**2).sum(axis=1) for A, B in pairs)
        return self.corrected(pt.maximum(self.gp._map.kernel_diag(self.X.tensor) - low, 0.0))

    def observe(self, name, observed, **kwargs):
        """The observed random variable."""
        roots = self.roots
        variance, penalty = self.diagonal(roots)
        return ProductNormal(
            name, self.gp.mean_func(self.X.tensor), roots, variance, penalty=penalty,
            preconditioner=self.preconditioner, probes=self.probes, steps=self.steps,
            observed=observed, **kwargs,
        )  # fmt: skip

    def _start(self):
        """Operator, roots, residual and its Lanczos basis."""
        roots = self.roots
        scale = self.diagonal(roots)[0] ** -0.5
        frozen = self.preconditioner
        operator = WhitenedProducts.of(roots, scale, frozen.vectors, frozen.shrinkage)
        residual = self.y.tensor - self.gp.mean_func(self.X.tensor)
        return operator, roots, residual, start(operator, residual, self.steps)

    def coefficients(self) -> Coefficients:
        r"""Posterior in the span V of the preconditioner's vectors and the Krylov basis (Galerkin).

        ``(I + F F')^{-1}`` with ``F = D^{-1/2} Phi`` becomes ``V (V'V + V'F F'V)^{-1} V'``, which is never
        above it: with ``G = F'V L^{-T}`` the coefficients have mean ``G L^{-1} V' D^{-1/2} (y - mu)`` and
        covariance ``I - G G'``.
        """
        operator, roots, residual, (Q, *_) = self._start()
        scale, krylov = operator.scale, operator.root_inverse(Q[:, : self.steps])
        V = pt.concatenate([operator.vectors, krylov], axis=1)
        pairs = list(zip(roots[::2], roots[1::2], strict=True))
        F = pt.concatenate([_features_t(A, B, scale[:, None] * V) for A, B in pairs])  # (r, k)
        H = V.T @ V + F.T @ F
        jitter = JITTER * pt.trace(H)
        L = cholesky(H + jitter * pt.eye(H.shape[0]), lower=True, on_error="nan")
        G = solve_triangular(L, F.T, lower=True).T
        inner = solve_triangular(L, V.T @ (scale * residual), lower=True)
        return Coefficients(G @ inner, G, deflated=True)

    def residuals(self, point=None, model=None) -> np.ndarray:
        """Relative residuals of preconditioned conjugate gradients after each step."""
        _, _, _, (_, _, alpha, beta) = self._start()
        return cg_residuals(*evaluate([alpha, beta], point, model))


def _features_t(A, B, V):
    """``(A # B)' V`` (a b, k)."""
    core = row_kronecker_project(A, B, V)
    return core.reshape((core.shape[0] * core.shape[1], core.shape[2]))


def product_fit(fit: MarginalFit, steps, probes, rank, point) -> ProductFit:
    """The fit with its probes, and a preconditioner frozen at a point (the model's initial one)."""
    found = ProductFit(fit.gp, fit.X, fit.y, fit.sigma, fit.approx, steps=steps, probes=probes)
    roots = found.roots
    *roots, variance = evaluate([*roots, found.diagonal(roots)[0]], point)
    scale = 1.0 / np.sqrt(variance)[:, None]
    scaled = [(scale * A, B) for A, B in zip(roots[::2], roots[1::2], strict=True)]

    def times(V):
        return sum(apply_rows(A, B, project_rows(A, B, V)) for A, B in scaled)

    frozen = LowRankPreconditioner.from_products(times, len(variance), rank)
    return replace(found, preconditioner=frozen)
