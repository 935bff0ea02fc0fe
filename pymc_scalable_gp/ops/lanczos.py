"""Krylov basis of a symmetric operator by Lanczos steps, with its exact adjoint."""

from functools import partial

import pytensor.tensor as pt
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._base import connected, store
from pymc_scalable_gp.ops._jax import register_jax
from pymc_scalable_gp.ops._krylov_products import Products, cache_key, python_function
from pymc_scalable_gp.ops._lanczos_steps import CHUNK, jax_backward, jax_forward
from pymc_scalable_gp.ops._numba import inlined
from pymc_scalable_gp.ops._pruning import ParametrizedOp
from pymc_scalable_gp.utils.checks import check_count


class Lanczos(ParametrizedOp):
    """Basis (steps + 1, n) by rows, alpha and beta (steps,) of `lanczos`; inputs b, parameters."""

    __props__ = ("products", "steps")
    own_inputs = ("(n)",)
    own_outputs = ("(q,n)", "(p)", "(p)")

    def lengths(self):
        return self.products.lengths | {"q": self.steps + 1, "p": self.steps}

    def perform(self, node, inputs, output_storage):
        b, *parameters = inputs
        forward, _ = self.products.python_steps(())
        store(output_storage, forward(b, self.steps, *parameters))

    def fixed(self, inputs):
        """Parameters that are not free."""
        return tuple(i for i in range(1, len(inputs)) if i - 1 not in self.products.free)

    def pullback(self, inputs, outputs, cotangents):
        """Cotangents of b and of the parameters; see `build_backward` of `_lanczos_steps`."""
        empty = pt.zeros((0, 0)), pt.zeros(self.steps), pt.zeros(self.steps)
        bars = [g if connected(g) else e for g, e in zip(cotangents, empty, strict=True)]
        b, *parameters = inputs
        adjoint = LanczosAdjoint(self.products, self.products.free)
        return adjoint(*outputs, b, *bars, *parameters, return_list=True)


class LanczosAdjoint(ParametrizedOp):
    """Cotangents of b, and of the parameters at the places `wanted`. It has no gradient itself."""

    __props__ = ("products", "wanted")
    own_inputs = ("(q,n)", "(p)", "(p)", "(n)", "(e,f)", "(p)", "(p)")
    own_outputs = ("(n)",)

    def perform(self, node, inputs, output_storage):
        _, backward = self.products.python_steps(self.wanted)
        store(output_storage, python_function(self, backward)(*inputs))


def lanczos(operator, b, steps: int):
    r"""Orthonormal basis of the Krylov space ``span{b, A b, ..., A^P b}`` of a symmetric operator.

    .. math:: A\,Q_P = Q_{P+1} \begin{pmatrix} T \\ \beta_P e_P^\top \end{pmatrix}, \qquad
              T = Q_P^\top A\, Q_P = \mathrm{tridiag}(\beta, \alpha, \beta)

    Parameters
    ----------
    operator : LinearOperator
        Symmetric, n x n: one of `linops`, or any object with their ``shape``, ``parameters`` and
        ``matmat``.
    b : tensor, shape (n,)
        Start vector.
    steps : int
        P: number of products with A.

    Returns
    -------
    Q : tensor, shape (n, P + 1)
        Orthonormal columns; the first is ``b / |b|``.
    alpha : tensor, shape (P,)
        Diagonal of T.
    beta : tensor, shape (P,)
        Norms of the new directions; the first P - 1 are T's off-diagonal.

    Raises
    ------
    TypeError, ValueError
        If the operator is not square, b not a vector of its size, or `steps` not a positive int.

    Notes
    -----
    Full reorthogonalisation: P products with A, O(n P^2) and one n x (P + 1) array. The gradient, in
    b and the operator's parameters, is the transpose of these steps: as many products with A, O(n P^2),
    and, unless Q itself has a cotangent, no second n x P array. It has no second derivative.

    When the space becomes invariant, which is when a new direction is shorter than 1e-13 of the
    operator's norm, the basis ends: the remaining columns, alpha and beta are zero.

    References
    ----------
    .. [1] Krämer, N. et al. (2024). Gradients of Functions of Large Matrices.
       https://doi.org/10.48550/arXiv.2405.17277

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> A = np.diag([1.0, 2.0, 4.0, 8.0])
    >>> found = sgp.ops.lanczos(sgp.linops.Dense(A), np.ones(4), steps=2)
    >>> Q, alpha, beta = (each.eval() for each in found)
    >>> Q.shape
    (4, 3)
    >>> alpha.round(3), beta.round(3)
    (array([3.75 , 5.511]), array([2.681, 1.837]))
    >>> T = Q.T @ A @ Q
    >>> np.diag(T)[:2].round(3), np.diag(T, 1).round(3)
    (array([3.75 , 5.511]), array([2.681, 1.837]))
    """
    steps = check_count("steps", steps)
    b = pt.as_tensor_variable(b).astype("float64")
    if b.ndim != 1:
        raise ValueError(f"b must be a vector, got {b.ndim} dimensions")
    products = Products.of(operator, b.type.shape[0], min(CHUNK, steps))
    Q, alpha, beta = Lanczos(products, steps)(b, *operator.parameters)
    return Q.T, alpha, beta


@nb.register_funcify_and_cache_key(Lanczos)
def numba_lanczos(op, node=None, **kwargs):
    (forward, key), steps = op.products.numba_forward(), op.steps

    @inlined
    def body(b, parameters):
        Q, alpha, beta = forward(b, steps, *parameters)
        return Q, alpha, beta, alpha[:0]

    return op.products.numba_function(op, node, body, cache_key("lanczos", key, steps))


@nb.register_funcify_and_cache_key(LanczosAdjoint)
def numba_lanczos_adjoint(op, node=None, **kwargs):
    body, key = op.products.numba_backward(op.wanted)
    key = cache_key("adjoint", key, op.products.chunk, op.wanted)
    return op.products.numba_function(op, node, body, key)


@register_jax(Lanczos)
def jax_lanczos(op):
    matmat, _ = op.products.jax_functions(())

    def forward(b, *parameters):
        return jax_forward(matmat, op.steps, b, parameters)

    return forward


@register_jax(LanczosAdjoint, differentiable=False)
def jax_lanczos_adjoint(op):
    functions = op.products.jax_functions(op.wanted)
    adjoint = python_function(op, partial(jax_backward, *functions, op.products.chunk))
    return adjoint if op.wanted else lambda *inputs: adjoint(*inputs)[0]
