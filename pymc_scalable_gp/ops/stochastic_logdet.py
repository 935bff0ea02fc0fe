"""Log determinant of a structured matrix by stochastic Lanczos quadrature, with its exact gradient."""

from typing import TYPE_CHECKING

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._jax import jax, jnp, register_jax
from pymc_scalable_gp.ops._lanczos_steps import (
    CHUNK,
    build_backward,
    build_forward,
    jax_backward,
    jax_forward,
    plain,
)
from pymc_scalable_gp.ops._products import Products, cache_key, split_flat
from pymc_scalable_gp.ops.log_quadrature import jax_quadrature, quadrature
from pymc_scalable_gp.utils.checks import check_count

if TYPE_CHECKING:
    from pymc_scalable_gp.linops.base import LinearOperator


class StochasticLogdet(Op):
    """Value, and gradient in the shift and in the flat free parameters (see `stochastic_logdet`)."""

    differentiable_outputs = (0,)

    def __init__(self, products: Products, steps: int):
        self.products, self.steps = products, steps

    def make_node(self, shift, probes, *parameters):
        flat = pt.tensor(dtype="float64", shape=(None,))
        return Apply(self, [shift, probes, *parameters], [pt.dscalar(), pt.dscalar(), flat])

    def perform(self, node, inputs, output_storage):
        matmat, vjp = self.products.python
        estimate = build(
            build_forward(matmat), build_backward(matmat, vjp, self.products.chunk), self.steps
        )
        for storage, value in zip(output_storage, estimate(*inputs), strict=True):
            storage[0] = np.asarray(value)

    def connection_pattern(self, node):
        free = [i in self.products.free for i in range(len(node.inputs) - 2)]
        return [[connected, False, False] for connected in (True, False, *free)]

    def pullback(self, inputs, outputs, cotangents):
        """The gradient comes with the value: the bases are not kept."""
        if isinstance(cotangents[0].type, DisconnectedType):
            return [disconnected_type() for _ in inputs]
        _shift, _probes, *parameters = inputs
        grads = split_flat(cotangents[0] * outputs[2], parameters, self.products.free)
        return [cotangents[0] * outputs[1], disconnected_type(), *grads]


def stochastic_logdet(operator: "LinearOperator", shift, probes, steps: int):
    r"""Estimate of ``log|A + c I|`` for a symmetric positive semidefinite operator.

    .. math:: \log|A + c I| \approx \frac1S \sum_s \|z_s\|^2\, e_1^\top \log(T_s + c I)\, e_1

    where ``T_s`` comes from P Lanczos steps on A from the probe ``z_s``. Unbiased, up to the
    quadrature, for probes of independent entries with mean 0 and variance 1.

    Parameters
    ----------
    operator : LinearOperator
        Symmetric, n x n.
    shift : tensor, scalar
        c, positive.
    probes : array, shape (S, n)
        Probe vectors, fixed: the result is one function of the parameters. Signs (+1, -1) vary
        least.
    steps : int
        P, the number of quadrature nodes for each probe.

    Returns
    -------
    tensor, scalar
        Differentiable once in the shift and the operator's parameters.

    Raises
    ------
    TypeError, ValueError
        If `probes` is not a matrix or `steps` not a positive int.

    Notes
    -----
    O(S (P products + n P^2)); memory for one basis, n x (P + 1), since each probe's gradient is taken
    before the next probe. The standard deviation is about ``(2 / S)^1/2 |offdiag(log(A + c I))|_F``:
    under S probes the maximum of a log density moves by about ``S^-1/2`` posterior standard
    deviations.

    References
    ----------
    .. [1] Ubaru, S., Chen, J. and Saad, Y. (2017). Fast Estimation of tr(f(A)) via Stochastic Lanczos
       Quadrature. https://doi.org/10.1137/16M1104974
    """
    steps = check_count("steps", steps)
    probes = pt.as_tensor_variable(probes).astype("float64")
    if probes.ndim != 2:
        raise ValueError(f"probes must have shape (S, n), got {probes.ndim} dimensions")
    shift = pt.as_tensor_variable(shift).astype("float64")
    products = Products.of(operator, probes.type.shape[1], min(CHUNK, steps))
    return StochasticLogdet(products, steps)(shift, probes, *operator.parameters)[0]


def build(forward, backward, steps, jit=plain):
    """``(shift, probes, *parameters) -> value, gradient in the shift, flat parameter gradient``."""
    empty = np.zeros((0, 0))

    @jit
    def estimate(shift, probes, *parameters):
        count = probes.shape[0]
        total, g_shift, flat = 0.0, 0.0, np.zeros(0)
        for s in range(count):
            z = np.ascontiguousarray(probes[s])
            Q, alpha, beta = forward(z, steps, *parameters)
            value, g_alpha, g_beta, g_c = quadrature(alpha, beta, shift.item())
            weight = np.dot(z, z) / count
            _, more = backward(
                Q, alpha, beta, z, empty, weight * g_alpha, weight * g_beta, *parameters
            )
            total += weight * value
            g_shift += weight * g_c
            flat = more if flat.size == 0 else flat + more
        return np.asarray(total), np.asarray(g_shift), flat

    return estimate


@nb.register_funcify_and_cache_key(StochasticLogdet)
def numba_stochastic_logdet(op, node=None, **kwargs):
    estimate = build(*op.products.numba_steps, op.steps, nb.numba_njit)
    key = cache_key("logdet", op.products.numba[2], op.products.chunk, op.steps)
    return estimate, key


@register_jax(StochasticLogdet)
def jax_stochastic_logdet(op):
    def forward(shift, probes, *parameters):
        matmat, vjp = op.products.jax

        def one(z):
            Q, alpha, beta = jax_forward(matmat, op.steps, z, parameters)
            value, g_alpha, g_beta, g_c = jax_quadrature(alpha, beta, shift)
            weight = z @ z / probes.shape[0]
            _, flat = jax_backward(
                matmat, vjp, op.products.chunk, Q, alpha, beta, z, jnp.zeros((0, 0)),
                weight * g_alpha, weight * g_beta, parameters,
            )  # fmt: skip
            return weight * value, weight * g_c, flat

        return tuple(part.sum(axis=0) for part in jax.lax.map(one, probes))

    return forward
