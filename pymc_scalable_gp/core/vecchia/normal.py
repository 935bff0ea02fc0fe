"""A PyMC distribution for vectors with low-rank plus block-Vecchia covariance."""

import pytensor.tensor as pt
from pymc.distributions.distribution import Continuous, SymbolicRandomVariable
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.logprob.abstract import _logprob
from pymc.pytensorf import normalize_rng_param
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.features.residual import Regressions
from pymc_scalable_gp.ops.lowrank_logp import LowRankTerms, lowrank_logp
from pymc_scalable_gp.ops.lowrank_posterior import lowrank_posterior
from pymc_scalable_gp.ops.vecchia_color import vecchia_color
from pymc_scalable_gp.ops.vecchia_whiten import vecchia_whiten


class VecchiaNormalRV(SymbolicRandomVariable):
    """Random graph of :class:`VecchiaNormal`."""

    _print_name = ("VecchiaNormal", "\\operatorname{VecchiaNormal}")
    extended_signature = "[rng],[size],(n),(n,r),(b,g,k),(b,g,g),(b,k),(n)->[rng],(n)"

    @classmethod
    def rv_op(cls, mu, phi, A, L, neighbors, order, *, rng=None, size=None):
        """Build the graph; all but `mu` in the order of the blocks."""
        params = [pt.as_tensor(p) for p in (mu, phi, A, L, neighbors, order)]
        mu, phi, A, L, neighbors, order = params
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        next_rng, draws = _draw(mu, phi, Regressions(A, L, neighbors), order, rng, size)
        op = cls(inputs=[rng, size, *params], outputs=[next_rng, draws])
        return op(rng, size, *params)


def _draw(mu, phi, found, order, rng, size):
    """Next generator, and draws; white columns stand side by side."""
    batch = () if rv_size_is_none(size) else tuple(size)
    count = pt.prod(pt.stack(batch)).astype("int64") if batch else 1
    n, rank = phi.shape
    next_rng, z = pt.random.normal(size=(rank, count), rng=rng, return_next_rng=True)
    next_rng, e = pt.random.normal(size=(n, count), rng=next_rng, return_next_rng=True)
    rows = phi @ z + vecchia_color(e, *found)
    draws = mu + rows[pt.argsort(order)].T
    return next_rng, draws.reshape((*batch, n)) if batch else draws[0]


class VecchiaNormal(Continuous):
    r"""Multivariate normal with covariance :math:`\Phi\Phi^\top + S`, S of block-Vecchia form.

    .. math:: v = \mu + \Phi z + u, \qquad u_b = A_b u_{N(b)} + L_b\,\varepsilon_b

    Parameters
    ----------
    mu : tensor, shape (n,)
        Mean.
    phi : tensor, shape (n, r)
        Features, in the order of the blocks.
    A, L, neighbors : tensors, shapes (b, g, k), (b, g, g) and (b, k)
        Regressions of the blocks on their neighbours.
    order : integer tensor, shape (n,)
        The place in `mu` and in the vector of each row of `phi`.

    Notes
    -----
    Log density and draws cost O(n (k + g) (r + 1) + n r^2). A covariance that is not positive definite
    gives NaN.
    """

    rv_type = VecchiaNormalRV
    rv_op = VecchiaNormalRV.rv_op

    @classmethod
    def dist(cls, mu, phi, A, L, neighbors, order, **kwargs):
        """Distribution outside a model; parameters as in the class."""
        params = [pt.as_tensor(p) for p in (mu, phi, A, L, neighbors, order)]
        return super().dist(params, **kwargs)

    @staticmethod
    def support_point(rv, rng, size, mu, *_parameters):
        """Mean."""
        return pt.full_like(rv, mu)


def whitened_terms(residual, phi, found: Regressions) -> tuple[TensorVariable, TensorVariable]:
    """Residual (n,) and features (n, r), whitened under S; both in the order of the blocks."""
    return (
        vecchia_whiten(residual[:, None], *found)[:, 0],
        vecchia_whiten(phi, *found),
    )


def posterior_terms(residual, phi, found: Regressions) -> LowRankTerms:
    """Terms of the density; the coefficients' posterior is among them."""
    residual, phi = whitened_terms(residual, phi, found)
    return lowrank_posterior(phi, pt.constant(1.0), residual)


@_logprob.register(VecchiaNormalRV)
def vecchia_normal_logprob(op, values, rng, size, mu, phi, A, L, neighbors, order, **kwargs):
    """Log density of one vector: that of the whitened one, and the determinant."""
    (value,) = values
    if value.ndim != 1:
        raise NotImplementedError("VecchiaNormal's logp takes one vector at a time")
    found = Regressions(A, L, neighbors)
    residual, phi = whitened_terms((value - mu)[order], phi, found)
    return lowrank_logp(phi, pt.constant(1.0), residual).logp - found.half_logdet()
