"""Krylov basis of a symmetric operator by Lanczos steps, with its exact adjoint."""

import math
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import get_mode
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._jax import jax, jax_funcify, register_jax
from pymc_scalable_gp.ops._krylov import (
    CHUNK,
    build_backward,
    build_forward,
    jax_backward,
    jax_forward,
)
from pymc_scalable_gp.ops._numba import source_version
from pymc_scalable_gp.point import is_random
from pymc_scalable_gp.validate import check_count

if TYPE_CHECKING:
    from pymc_scalable_gp.linops import LinearOperator


class Products:
    """Products with a linear operator, and their gradient, as graphs of its parameters alone."""

    def __init__(self, operator: "LinearOperator", n: int | None, chunk: int):
        outer = list(operator.parameters)
        self.free = tuple(i for i, p in enumerate(outer) if is_random(p))
        inner = [p.type() for p in outer]
        replace = dict(zip(outer, inner, strict=True))
        # Static numbers of columns: JAX must know every shape.
        v = pt.tensor("v", dtype="float64", shape=(n, 1))
        V, G = (pt.tensor(name, dtype="float64", shape=(n, chunk)) for name in "VG")
        single, product = (
            clone_replace(operator.matmat(a), replace).astype("float64") for a in (v, V)
        )
        wanted = [inner[i] for i in self.free]
        grads = pt.grad((product * G).sum(), wanted, disconnected_inputs="ignore") if wanted else []
        flat = pt.concatenate([g.ravel() for g in grads]) if grads else pt.zeros(0)
        self.chunk = chunk
        self.matmat = FunctionGraph([v, *inner], [single], clone=True)
        self.vjp = FunctionGraph([V, G, *inner], [flat.astype("float64")], clone=True)

    @classmethod
    def of(cls, operator: "LinearOperator", n: int | None, chunk: int) -> "Products":
        """The operator's own, made once: what uses them shares their compiled functions."""
        held = operator.__dict__.setdefault("_products", {})
        if (n, chunk) not in held:
            held[n, chunk] = cls(operator, n, chunk)
        return held[n, chunk]

    def __getstate__(self):
        return {name: getattr(self, name) for name in ("free", "chunk", "matmat", "vjp")}

    @cached_property
    def python(self):
        """Compiled ``matmat`` and ``vjp`` for `perform`."""
        return tuple(
            pytensor.function(
                g.inputs, g.outputs[0], mode="FAST_COMPILE", on_unused_input="ignore",
                accept_inplace=True, trust_input=True,
            )
            for g in (self.matmat.clone(), self.vjp.clone())
        )  # fmt: skip

    @cached_property
    def numba(self):
        """Numba functions ``matmat`` and ``vjp``, and a cache key (None: not cacheable)."""
        functions, keys = [], []
        for graph in (self.matmat.clone(), self.vjp.clone()):
            get_mode("NUMBA").excluding("inplace").optimizer.rewrite(graph)
            function, key = nb.numba_funcify_and_cache_key(graph, squeeze_output=True)
            functions.append(function)
            keys.append(key)
        return *functions, None if None in keys else "".join(keys)

    @cached_property
    def numba_steps(self):
        """Numba functions of the Lanczos steps and of their adjoint."""
        matmat, vjp, _ = self.numba
        return (
            build_forward(matmat, nb.numba_njit),
            build_backward(matmat, vjp, self.chunk, nb.numba_njit),
        )

    @cached_property
    def jax(self):
        """JAX functions ``matmat`` and ``vjp``."""
        with jax.ensure_compile_time_eval():  # constants must not belong to a trace
            matmat, vjp = (jax_funcify(g) for g in (self.matmat, self.vjp))
        return (lambda *a: matmat(*a)[0]), (lambda *a: vjp(*a)[0])


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


def split_flat(flat, parameters, free):
    """Gradients of the free parameters out of one vector; the others are disconnected."""
    grads, start = [disconnected_type() for _ in parameters], 0
    for i in free:
        shape = parameters[i].type.shape
        stop = start + (parameters[i].size if None in shape else math.prod(shape))
        if shape:
            grads[i] = flat[start:stop].reshape(parameters[i].shape, ndim=len(shape))
        else:
            grads[i] = flat[start]
        start = stop
    return grads


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


def cache_key(*parts):
    """Key of a compiled function, or None if a part has none."""
    if None in parts:
        return None
    return sha256(str((source_version(), *parts)).encode()).hexdigest()


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
