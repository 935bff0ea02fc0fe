"""SKIP's Gaussian likelihood from products alone: normal vectors, what is frozen, and the posterior."""

from dataclasses import dataclass, replace
from itertools import batched

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.likelihoods.base import FullRows, Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal, white
from pymc_scalable_gp.linops.base import LinearOperator
from pymc_scalable_gp.linops.krylov import cg_residuals, tridiagonal
from pymc_scalable_gp.linops.preconditioner import LowRankPreconditioner, root_inverse
from pymc_scalable_gp.ops.hadamard import (
    apply_rows,
    project_rows,
    row_kronecker_apply,
    row_kronecker_project,
)
from pymc_scalable_gp.ops.lanczos import lanczos
from pymc_scalable_gp.ops.no_gradient import no_gradient
from pymc_scalable_gp.ops.stacked_cholesky import cholesky
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.ops.stacked_solve import lower_solve
from pymc_scalable_gp.ops.stochastic_logdet import stochastic_logdet
from pymc_scalable_gp.utils.compiled import evaluate, evaluate_at
from pymc_scalable_gp.utils.graphs import fixed_shared
from pymc_scalable_gp.utils.jitter import KRYLOV_JITTER

# Shift of the log determinant: the matrix is positive definite, T of a basis that has ended may not be.
_SHIFT = 1e-12


@dataclass(frozen=True, eq=False)
class WhitenedProducts(LinearOperator):
    r"""``P^{-1/2} (I + D^{-1/2} sum_t (A_t A_t') * (B_t B_t') D^{-1/2}) P^{-1/2}``."""

    roots: tuple[TensorVariable, ...]  # A_1 (n, a), B_1 (n, b), A_2, ...
    scale: TensorVariable  # D^{-1/2} (n,)
    vectors: TensorVariable  # Q (n, q)
    shrinkage: TensorVariable  # h (q,) in P^{-1/2} = I - Q diag(h) Q'

    @property
    def shape(self):
        n = self.vectors.type.shape[0]
        return n, n

    def matmat(self, V):
        """Product with V (n, k): O(n k (sum a b + q))."""
        return self.root_inverse(self._middle(self.root_inverse(V)))

    def _middle(self, V):
        """``V + D^{-1/2} K D^{-1/2} V``."""
        column, out = self.scale[:, None], V
        for A, B in batched(self.roots, 2, strict=True):
            core = row_kronecker_project(A, B, column * V)
            out = out + column * row_kronecker_apply(A, B, core)
        return out

    def root_inverse(self, v):
        """``P^{-1/2} v`` for v (n,) or (n, k)."""
        return root_inverse(v, self.vectors, self.shrinkage)

    def diag(self):
        """Diagonal (n,), of ``M - Q H Q'M - M Q H Q' + Q H (Q'M Q) H Q'``: as one product with Q."""
        out = 1.0
        for A, B in batched(self.roots, 2, strict=True):
            out = out + self.scale**2 * (A**2).sum(axis=1) * (B**2).sum(axis=1)
        Q, QH = self.vectors, self.vectors * self.shrinkage
        MQ = self._middle(Q)
        return out - 2.0 * (QH * MQ).sum(axis=1) + ((QH @ (Q.T @ MQ)) * QH).sum(axis=1)


@dataclass(frozen=True, eq=False)
class ProductNormal(StructuredNormal):
    r"""``N(mean, sum_t (A_t A_t') * (B_t B_t') + D)``, by products alone, without features.

    ``-2 log p = |b|^2 e_1' T^-1 e_1 + mean_s |z_s|^2 e_1' log(T_s) e_1 + log |P| + log |D| + n log 2 pi``,
    with ``b = P^-1/2 D^-1/2 (y - mean)``, and T, T_s from Lanczos steps of the preconditioned matrix that
    start at b (these are conjugate gradients) and at the S probes z_s. It is one function of the
    parameters, with a gradient of its own, in O((1 + S) steps n (a b + k)) and memory O(n (steps + a + b +
    k)). A matrix that is not positive definite gives NaN.
    """

    roots: tuple[TensorVariable, ...]  # A_1 (n, a), B_1 (n, b), A_2, ...
    variance: TensorVariable  # diagonal D (n,), positive
    # Of a frozen P, close to I + D^{-1/2} K D^{-1/2} where the posterior is.
    vectors: TensorVariable  # (n, k)
    shrinkage: TensorVariable  # (k,)
    frozen_logdet: TensorVariable
    probes: TensorVariable  # frozen vectors (S, n) of independent signs
    steps: int  # of Lanczos
    penalty: TensorVariable  # taken off logp: the trace term of the bound that "VFE" maximises

    def draw(self, rng, size):
        pairs = list(batched(self.roots, 2, strict=True))
        shapes = [(A.shape[1], B.shape[1]) for A, B in pairs]
        next_rng, (e, *normals) = white(rng, size, (self.mean.shape[0],), *shapes)
        draws = self.mean + pt.sqrt(self.variance) * e
        for (A, B), Z in zip(pairs, normals, strict=True):
            draws = draws + ((A @ Z) * B).sum(axis=-1)
        return next_rng, draws

    @property
    def operator(self) -> WhitenedProducts:
        """The preconditioned matrix; a new object at each call."""
        return WhitenedProducts(self.roots, self.variance**-0.5, self.vectors, self.shrinkage)

    def logp(self, value):
        operator = self.operator
        _, length, alpha, beta = start(operator, value - self.mean, self.steps)
        L = cholesky(tridiagonal(alpha, beta))
        quadratic = length**2 * (lower_solve(L, pt.eye(self.steps)[0]) ** 2).sum()
        logdet = self.frozen_logdet + stochastic_logdet(operator, _SHIFT, self.probes, self.steps)
        logdet = logdet + pt.log(self.variance).sum()
        return -0.5 * (quadratic + logdet + value.shape[0] * np.log(2.0 * np.pi)) - self.penalty


def start(operator: WhitenedProducts, residual, steps):
    """Lanczos basis of the residual, its length, and T's entries, with 1 where the basis has ended."""
    b = operator.root_inverse(operator.scale * residual)
    Q, alpha, beta = lanczos(operator, b, steps)
    return Q, pt.sqrt((b**2).sum()), alpha + pt.eq(alpha, 0.0), beta


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
    def of(cls, data: MarginalData, steps: int, count: int, rank: int, seed=0) -> "HadamardProducts":
        """With `count` probes, and a preconditioner frozen where the features' directions were."""
        roots = training_roots(data)
        *roots, variance = evaluate(
            [*roots, diagonal_beside(data, roots, data.sigma**2)[0]], data.feature_map.point
        )
        scale = 1.0 / np.sqrt(variance)[:, None]
        scaled = [(scale * A, B) for A, B in batched(roots, 2, strict=True)]

        def times(V):
            return sum(apply_rows(A, B, project_rows(A, B, V)) for A, B in scaled)

        frozen = LowRankPreconditioner.from_products(times, len(variance), rank)
        signs = np.random.default_rng(seed).integers(0, 2, (count, data.size))
        return cls(data, frozen, 2.0 * signs - 1.0, steps)

    def given(self, X, y, sigma):
        """The likelihood of those rows, with a preconditioner and probes for them."""
        data, rank = replace(self.data, X=X, y=y, sigma=sigma), len(self.preconditioner.values)
        return self.of(data, min(self.steps, data.size), len(self.probes), rank)

    def normal(self, noise):
        roots = training_roots(self.data)
        variance, penalty = diagonal_beside(self.data, roots, noise)
        P = self.preconditioner
        frozen = map(fixed_shared, (P.vectors, P.shrinkage, P.logdet, self.probes))
        return ProductNormal(self.data.mean, tuple(roots), variance, *frozen, self.steps, penalty)

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
