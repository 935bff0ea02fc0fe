"""Normal vectors whose covariance is a sum of Hadamard products plus a diagonal, by Lanczos steps."""

from dataclasses import dataclass
from functools import partial
from itertools import batched

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import Continuous, SymbolicRandomVariable
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.logprob.abstract import _logprob
from pymc.pytensorf import normalize_rng_param
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.linops.base import LinearOperator
from pymc_scalable_gp.linops.krylov import tridiagonal
from pymc_scalable_gp.linops.preconditioner import LowRankPreconditioner, root_inverse
from pymc_scalable_gp.ops.hadamard import row_kronecker_apply, row_kronecker_project
from pymc_scalable_gp.ops.lanczos import lanczos
from pymc_scalable_gp.ops.stacked_cholesky import cholesky
from pymc_scalable_gp.ops.stacked_solve import lower_solve
from pymc_scalable_gp.ops.stochastic_logdet import stochastic_logdet
from pymc_scalable_gp.utils.graphs import fixed_shared

# The log determinant's shift: the matrix is positive definite by itself, an exhausted basis is not.
_SHIFT = 1e-12


@dataclass(frozen=True, eq=False)
class WhitenedProducts(LinearOperator):
    r"""``P^{-1/2} (I + D^{-1/2} sum_t (A_t A_t') * (B_t B_t') D^{-1/2}) P^{-1/2}``.

    Parameters
    ----------
    roots : tuple of tensors
        A_1 (n, a), B_1 (n, b), A_2, ....
    scale : tensor, shape (n,)
        ``D^{-1/2}``.
    vectors, shrinkage : tensors, shapes (n, q) and (q,)
        Q and h of ``P^{-1/2} = I - Q diag(h) Q'``.
    """

    roots: tuple[TensorVariable, ...]
    scale: TensorVariable
    vectors: TensorVariable
    shrinkage: TensorVariable

    @classmethod
    def of(cls, roots, scale, vectors, shrinkage):
        """From arrays or tensors."""
        return cls(tuple(map(pt.as_tensor, roots)), *map(pt.as_tensor, (scale, vectors, shrinkage)))

    @property
    def shape(self):
        """Rows and columns."""
        n = self.vectors.type.shape[0]
        return n, n

    @property
    def parameters(self):
        """The tensors that it is made of."""
        return *self.roots, self.scale, self.vectors, self.shrinkage

    @property
    def T(self):
        """Itself."""
        return self

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


class ProductNormalRV(SymbolicRandomVariable):
    """Random graph of :class:`ProductNormal`."""

    _print_name = ("ProductNormal", "\\operatorname{ProductNormal}")

    @classmethod
    def rv_op(cls, *params, steps, rng=None, size=None):
        """Build the graph; parameters as `ProductNormal.dist` orders them."""
        params = [pt.as_tensor(p) for p in params]
        mu, variance, _penalty, _vectors, _shrinkage, _logdet, _probes, *roots = params
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        batch = () if rv_size_is_none(size) else tuple(size)
        next_rng, e = pt.random.normal(size=(*batch, mu.shape[-1]), rng=rng, return_next_rng=True)
        draws = mu + pt.sqrt(variance) * e
        for A, B in batched(roots, 2, strict=True):
            shape = (*batch, A.shape[-1], B.shape[-1])
            next_rng, Z = pt.random.normal(size=shape, rng=next_rng, return_next_rng=True)
            draws = draws + ((A @ Z) * B).sum(axis=-1)
        names = ",".join(f"(n,r{i})" for i in range(len(roots)))
        op = cls(
            inputs=[rng, size, *params],
            outputs=[next_rng, draws],
            extended_signature=f"[rng],[size],(n),(n),(),(n,k),(k),(),(s,n),{names}->[rng],(n)",
        )
        op.steps = steps
        op.rv_op = partial(cls.rv_op, steps=steps)  # used when resized
        return op(rng, size, *params)


class ProductNormal(Continuous):
    r"""Multivariate normal with covariance :math:`\sum_t A_t A_t^\top \circ B_t B_t^\top + D`.

    The features, rows ``a_i (x) b_i``, are never formed: ``logp`` takes products only.

    .. math::

        -2 \log p = \|b\|^2\, e_1^\top T^{-1} e_1
        + \frac1S \sum_s \|z_s\|^2\, e_1^\top \log(T_s)\, e_1 + \log|P| + \log|D| + n \log 2\pi

    with ``b = P^{-1/2} D^{-1/2} (y - mu)``, and T, T_s from that many Lanczos steps of the preconditioned
    matrix, started at b (conjugate gradients, in other words) and at the probes z_s.

    Parameters
    ----------
    mu : tensor, shape (n,)
        Mean.
    roots : sequence of tensors
        A_1 (n, a), B_1 (n, b), A_2, ....
    variance : tensor, shape (n,)
        Diagonal D, positive.
    preconditioner : LowRankPreconditioner
        Frozen P, close to ``I + D^{-1/2} K D^{-1/2}`` where the posterior is.
    probes : array, shape (S, n)
        Frozen vectors of independent signs.
    steps : int
        Lanczos steps.
    penalty : tensor, scalar
        Taken off ``logp``: the trace term of the bound that "VFE" maximises.

    Notes
    -----
    A density with its gradient costs O((1 + S) steps n (a b + k)) and memory O(n (steps + a + b + k)). It
    is one function of the parameters, and the gradient is exactly its own. A matrix that is not positive
    definite gives ``logp = nan``.
    """

    rv_type = ProductNormalRV
    rv_op = ProductNormalRV.rv_op

    @classmethod
    def dist(
        cls, mu, roots, variance, *, preconditioner: LowRankPreconditioner, probes, steps,
        penalty=0.0, **kwargs,
    ):  # fmt: skip
        """Distribution outside a model; parameters as in the class."""
        frozen = preconditioner.vectors, preconditioner.shrinkage, preconditioner.logdet, probes
        frozen = [fixed_shared(part) for part in frozen]
        variance = pt.as_tensor(variance)
        mu = (pt.ones_like(variance) * mu).astype("float64")
        return super().dist([mu, variance, penalty, *frozen, *roots], steps=steps, **kwargs)

    @staticmethod
    def support_point(rv, rng, size, mu, *_parameters):
        """Mean."""
        return pt.full_like(rv, mu)


@_logprob.register(ProductNormalRV)
def product_normal_logprob(
    op,
    values,
    rng,
    size,
    mu,
    variance,
    penalty,
    vectors,
    shrinkage,
    logdet,
    probes,
    *roots,
    **kwargs,
):
    """Log density of one vector."""
    (value,) = values
    if value.ndim != 1:
        raise NotImplementedError("ProductNormal's logp takes one vector at a time")
    operator = WhitenedProducts.of(roots, variance**-0.5, vectors, shrinkage)
    _, length, alpha, beta = start(operator, value - mu, op.steps)
    L = cholesky(tridiagonal(alpha, beta))
    first = pt.eye(op.steps)[0]
    quadratic = length**2 * (lower_solve(L, first) ** 2).sum()
    logdet = logdet + stochastic_logdet(operator, _SHIFT, probes, op.steps)
    logdet = logdet + pt.log(variance).sum()
    return -0.5 * (quadratic + logdet + value.shape[0] * np.log(2.0 * np.pi)) - penalty


def start(operator: WhitenedProducts, residual, steps):
    """Lanczos basis of the residual, its length, and T's entries, with 1 where the basis has ended."""
    b = operator.root_inverse(operator.scale * residual)
    Q, alpha, beta = lanczos(operator, b, steps)
    return Q, pt.sqrt((b**2).sum()), alpha + pt.eq(alpha, 0.0), beta
