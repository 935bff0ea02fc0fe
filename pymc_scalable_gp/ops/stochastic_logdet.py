"""Log determinant of a structured matrix by stochastic Lanczos quadrature, with its exact gradient."""

import numpy as np
import pytensor.tensor as pt
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._base import store
from pymc_scalable_gp.ops._jax import SymbolicZero, jax, jnp, register_jax
from pymc_scalable_gp.ops._krylov_products import Products, cache_key, cut, python_function
from pymc_scalable_gp.ops._lanczos_steps import CHUNK, jax_backward, jax_forward, plain
from pymc_scalable_gp.ops._numba import inlined
from pymc_scalable_gp.ops._pruning import ParametrizedOp
from pymc_scalable_gp.ops._quadrature import jax_quadrature, quadrature
from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.internals import njit


class StochasticLogdet(ParametrizedOp):
    """Value, slope in the shift, and gradients in the parameters at the places `wanted`.

    See `stochastic_logdet`.
    """

    __props__ = ("products", "steps", "wanted")
    own_inputs = ("()", "(s,n)")
    own_outputs = ("()", "()")
    differentiable_outputs = (0,)

    def lengths(self):
        return self.products.lengths

    def perform(self, node, inputs, output_storage):
        estimate = _build(self, *self.products.python_steps(self.wanted))
        store(output_storage, python_function(self, estimate)(*inputs))

    def fixed(self, inputs):
        """The probes, and parameters that are not free."""
        return 1, *(i for i in range(2, len(inputs)) if i - 2 not in self.products.free)

    def pullback(self, inputs, outputs, cotangents):
        """The gradient comes with the value: the bases are not kept."""
        g, free = cotangents[0], self.products.free
        if self.wanted != free:  # some were dropped before
            outputs = self.keeping(free)(*inputs, return_list=True)
        return [g * slope for slope in outputs[1:]]


def stochastic_logdet(operator, shift, probes, steps: int):
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
        If the operator is not square, `probes` not a matrix of as many columns, with a row or more, or
        `steps` not a positive int.

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

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A = sgp.linops.Diagonal(np.array([0.0, 1.0, 3.0]))
    >>> probes = np.array([[1.0, -1.0, 1.0]])  # signs: no error where A is diagonal
    >>> print(sgp.ops.stochastic_logdet(A, 1.0, probes, steps=3).eval().round(4))
    2.0794
    >>> print(np.log(1.0 * 2.0 * 4.0).round(4))
    2.0794
    """
    steps = check_count("steps", steps)
    probes = pt.as_tensor_variable(probes).astype("float64")
    if probes.ndim != 2:
        raise ValueError(f"probes must have shape (S, n), got {probes.ndim} dimensions")
    if probes.type.shape[0] == 0:
        raise ValueError("probes must have at least one row, got none")
    shift = pt.as_tensor_variable(shift).astype("float64")
    products = Products.of(operator, probes.type.shape[1], min(CHUNK, steps))
    op = StochasticLogdet(products, steps, products.free)
    return op(shift, probes, *operator.parameters, return_list=True)[0]


def _build(op, forward, backward, jit=plain):
    """``(shift, probes, parameters) -> value, slope in the shift, flat gradient``."""
    steps, empty = op.steps, np.zeros((0, 0))

    @jit
    def nothing(Q, alpha, beta, b, Q_bar, alpha_bar, beta_bar, parameters):
        return b, np.zeros(0)

    adjoint = backward if op.wanted else nothing

    def estimate(shift, probes, parameters):
        count = max(probes.shape[0], 1)
        total, g_shift, flat = 0.0, 0.0, np.zeros(0)
        for s in range(count):
            # The mean over no probes is NaN.
            z = np.ascontiguousarray(probes[s]) if len(probes) else np.full(probes.shape[1], np.nan)
            Q, alpha, beta = forward(z, steps, *parameters)
            value, g_alpha, g_beta, g_c = quadrature(alpha, beta, shift.item())
            weight = np.dot(z, z) / count
            _, more = adjoint(Q, alpha, beta, z, empty, weight * g_alpha, weight * g_beta, parameters)
            total += weight * value
            g_shift += weight * g_c
            flat = more if flat.size == 0 else flat + more
        return np.asarray(total), np.asarray(g_shift), flat

    return estimate


@nb.register_funcify_and_cache_key(StochasticLogdet)
def numba_stochastic_logdet(op, node=None, **kwargs):
    forward, first = op.products.numba_forward()
    places = op.wanted
    backward, second = op.products.numba_backward(places) if places else (None, "")
    key = cache_key("logdet", first, second, op.products.chunk, op.steps, op.wanted)
    body = inlined(_build(op, forward, backward, njit))
    return op.products.numba_function(op, node, body, key)


def _jax_estimate(op, places, shift, probes, parameters):
    """Value, slope in the shift, and flat gradient in the parameters at `places`."""
    matmat, vjp = op.products.jax_functions(places)

    def add(total, z):
        Q, alpha, beta = jax_forward(matmat, op.steps, z, parameters)
        value, g_alpha, g_beta, g_c = jax_quadrature(alpha, beta, shift)
        weight = z @ z / probes.shape[0]
        flat = jnp.zeros(0)
        if places:
            _, flat = jax_backward(
                matmat, vjp, op.products.chunk, Q, alpha, beta, z, jnp.zeros((0, 0)),
                weight * g_alpha, weight * g_beta, parameters,
            )  # fmt: skip
        found = (weight * value, weight * g_c, flat)
        return [t + a for t, a in zip(total, found, strict=True)], None

    if not len(probes):
        probes = jnp.full((1, probes.shape[1]), jnp.nan)
    start = [jnp.zeros(()), jnp.zeros(()), jnp.zeros(sum(parameters[i].size for i in places))]
    return jax.lax.scan(add, start, probes)[0]


@register_jax(StochasticLogdet, differentiable=False)
def jax_stochastic_logdet(op):
    """JAX says in which inputs it differentiates: only those gradients are added to the op's own."""

    def evaluate(extra, inputs):
        shift, probes, *parameters = inputs
        places = sorted({*op.wanted, *(i for i in extra if i in op.products.free)})
        value, slope, flat = _jax_estimate(op, tuple(places), shift, probes, parameters)
        grads = dict(zip(places, cut(flat, parameters, places), strict=True))
        own = (value, slope, *(grads[place] for place in op.wanted))
        return own, (slope, None, *(grads.get(i) for i in range(len(parameters))))

    @jax.custom_vjp
    def function(*inputs):
        return evaluate((), inputs)[0]

    def fwd(*inputs):
        extra = [i for i, x in enumerate(inputs[2:]) if x.perturbed]
        return evaluate(extra, [x.value for x in inputs])

    def bwd(grads, cotangents):
        g = cotangents[0]
        if isinstance(g, SymbolicZero):
            return (None,) * len(grads)
        return tuple(None if slope is None else g * slope for slope in grads)

    function.defvjp(fwd, bwd, symbolic_zeros=True)
    return function
