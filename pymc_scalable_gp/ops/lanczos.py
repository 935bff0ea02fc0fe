"""Krylov basis of a symmetric operator by Lanczos steps, with its exact adjoint."""

from typing import TYPE_CHECKING

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._jax import register_jax
from pymc_scalable_gp.ops._lanczos_steps import (
    CHUNK,
    build_backward,
    build_forward,
    jax_backward,
    jax_forward,
)
from pymc_scalable_gp.ops._products import Products, cache_key, split_flat
from pymc_scalable_gp.utils.checks import check_count

if TYPE_CHECKING:
    from pymc_scalable_gp.linops.base import LinearOperator


class Lanczos(Op):
    """Basis (steps + 1, n) by rows, alpha and beta (steps,) of `lanczos`; inputs b, parameters."""

    def __init__(self, products: Products, steps: int):
        self.products, self.steps = products, steps

    def make_node(self, b, *parameters):
        n = b.type.shape[0]
        shapes = (self.steps + 1, n), (self.steps,), (self.steps,)
        return Apply(
            self, [b, *parameters], [pt.tensor(dtype="float64", shape=shape) for shape in shapes]
        )

    def infer_shape(self, node, input_shapes):
        return [(self.steps + 1, input_shapes[0][0]), (self.steps,), (self.steps,)]

    def perform(self, node, inputs, output_storage):
        b, *parameters = inputs
        forward = build_forward(self.products.python[0])
        for storage, value in zip(output_storage, forward(b, self.steps, *parameters), strict=True):
            storage[0] = value

    def connection_pattern(self, node):
        free = [True] + [i in self.products.free for i in range(len(node.inputs) - 1)]
        return [[connected] * 3 for connected in free]

    def pullback(self, inputs, outputs, cotangents):
        """Cotangents of b and of the parameters; see `_krylov.build_backward`."""
        b, *parameters = inputs
        absent = [isinstance(g.type, DisconnectedType) for g in cotangents]
        empty = pt.zeros((0, 0)), pt.zeros(self.steps), pt.zeros(self.steps)
        bars = [e if no else g for e, no, g in zip(empty, absent, cotangents, strict=True)]
        adjoint = LanczosAdjoint(self.products)
        b_bar, flat = adjoint(*outputs, b, *bars, *parameters)
        return [b_bar, *split_flat(flat, parameters, self.products.free)]


class LanczosAdjoint(Op):
    """Cotangents of b and of the flattened free parameters. It has no gradient itself."""

    def __init__(self, products: Products):
        self.products = products

    def make_node(self, *inputs):
        b = inputs[3]
        return Apply(self, list(inputs), [b.type(), pt.tensor(dtype="float64", shape=(None,))])

    def perform(self, node, inputs, output_storage):
        backward = build_backward(*self.products.python, self.products.chunk)
        output_storage[0][0], output_storage[1][0] = backward(*inputs)


def lanczos(operator: "LinearOperator", b, steps: int):
    r"""Orthonormal basis of the Krylov space ``span{b, A b, ..., A^P b}`` of a symmetric operator.

    .. math:: A\,Q_P = Q_{P+1} \begin{pmatrix} T \\ \beta_P e_P^\top \end{pmatrix}, \qquad
              T = Q_P^\top A\, Q_P = \mathrm{tridiag}(\beta, \alpha, \beta)

    Parameters
    ----------
    operator : LinearOperator
        Symmetric, n x n.
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
    key, (forward, _), steps = op.products.numba[2], op.products.numba_steps, op.steps

    @nb.numba_njit
    def lanczos_steps(b, *parameters):
        return forward(b, steps, *parameters)

    return lanczos_steps, cache_key("lanczos", key, steps)


@nb.register_funcify_and_cache_key(LanczosAdjoint)
def numba_lanczos_adjoint(op, node=None, **kwargs):
    key = cache_key("adjoint", op.products.numba[2], op.products.chunk)
    return op.products.numba_steps[1], key


@register_jax(Lanczos)
def jax_lanczos(op):
    def forward(b, *parameters):
        return jax_forward(op.products.jax[0], op.steps, b, parameters)

    return forward


@register_jax(LanczosAdjoint, differentiable=False)
def jax_lanczos_adjoint(op):
    def backward(Q, alpha, beta, b, Q_bar, alpha_bar, beta_bar, *parameters):
        return jax_backward(
            *op.products.jax,
            op.products.chunk,
            Q,
            alpha,
            beta,
            b,
            Q_bar,
            alpha_bar,
            beta_bar,
            parameters,
        )

    return backward
