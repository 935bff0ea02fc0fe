"""Products with ``I +`` a scaled sum of Hadamard products, between two preconditioners, in one Op."""

from itertools import pairwise

import numpy as np
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._jax import register_jax
from pymc_scalable_gp.ops._lanczos_steps import plain
from pymc_scalable_gp.ops._numba import register_numba
from pymc_scalable_gp.ops._tensors import as_float64
from pymc_scalable_gp.ops.hadamard import (
    apply_rows,
    jax_row_kronecker_apply,
    jax_row_kronecker_project,
    jax_row_kronecker_rows,
    project_rows,
    rows_gradient,
)


class PreconditionedProduct(Op):
    """Value of `preconditioned_product`; `widths` are the columns (a_1, b_1, a_2, ...) of the roots."""

    __props__ = ("widths",)

    def __init__(self, widths):
        self.widths = tuple(int(w) for w in widths)

    def make_node(self, V, A, B, scale, vectors, shrinkage):
        inputs = as_float64(V, A, B, scale, vectors, shrinkage)
        return Apply(self, inputs, [inputs[0].type()])

    def infer_shape(self, node, input_shapes):
        return [input_shapes[0]]

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = _build_product(self.widths)(*inputs)

    def connection_pattern(self, node):
        return [[True]] * 4 + [[False]] * 2

    def pullback(self, inputs, outputs, cotangents):
        """The matrix is symmetric: ``dV = M G``; the preconditioner is frozen."""
        V, *rest = inputs
        (G,) = cotangents
        if isinstance(G.type, DisconnectedType):
            return [disconnected_type() for _ in inputs]
        slopes = PreconditionedRows(self.widths)(V, G, *rest)
        return [self(G, *rest), *slopes, disconnected_type(), disconnected_type()]


class PreconditionedRows(Op):
    """Gradients of ``sum(G * (M V))`` in A, B and the scale. It has none itself."""

    __props__ = ("widths",)

    def __init__(self, widths):
        self.widths = tuple(int(w) for w in widths)

    def make_node(self, V, G, A, B, scale, vectors, shrinkage):
        inputs = as_float64(V, G, A, B, scale, vectors, shrinkage)
        return Apply(self, inputs, [x.type() for x in inputs[2:5]])

    def infer_shape(self, node, input_shapes):
        return input_shapes[2:5]

    def perform(self, node, inputs, output_storage):
        for storage, value in zip(output_storage, _build_rows(self.widths)(*inputs), strict=True):
            storage[0] = value


def preconditioned_product(V, A, B, scale, vectors, shrinkage, widths):
    r"""``M V`` with ``M = P^{-1/2} (I + D^{-1/2} K D^{-1/2}) P^{-1/2}``.

    .. math:: K = \sum_t (A_t A_t^\top) \circ (B_t B_t^\top), \qquad
              P^{-1/2} = I - Q\,\mathrm{diag}(h)\,Q^\top

    Parameters
    ----------
    V : tensor, shape (n, k)
    A, B : tensors, shapes (n, sum a_t) and (n, sum b_t)
        The terms' roots side by side.
    scale : tensor, shape (n,)
        ``D^{-1/2}``.
    vectors, shrinkage : tensors, shapes (n, q) and (q,)
        Q, orthonormal, and h. Frozen: there is no gradient in them.
    widths : sequence of int
        a_1, b_1, a_2, b_2, ....

    Returns
    -------
    tensor, shape (n, k)
        Differentiable once in V, A, B and the scale.

    Notes
    -----
    O(n k (sum_t a_t b_t + q)); work arrays of one block of rows.
    """
    return PreconditionedProduct(widths)(V, A, B, scale, vectors, shrinkage)


def root_inverse(V, vectors, shrinkage):
    """``P^{-1/2} V`` for V (n, k) or (n,): an array of NumPy, Numba or JAX, or a tensor."""
    return V - vectors @ ((vectors.T @ V).T * shrinkage).T


def _build_product(widths, jit=plain):
    """``(V, A, B, scale, vectors, shrinkage) -> M V``, in Python or Numba."""
    whiten, starts = jit(root_inverse), _starts(widths)

    @jit
    def product(V, A, B, scale, vectors, shrinkage):
        vectors = np.ascontiguousarray(vectors)
        white = whiten(np.ascontiguousarray(V), vectors, shrinkage)
        column = scale.copy().reshape((-1, 1))
        scaled = column * white
        for t in range(len(starts) - 1):
            (a, b), (c, d) = starts[t], starts[t + 1]
            core = project_rows(A[:, a:c], B[:, b:d], scaled)
            white = white + column * apply_rows(A[:, a:c], B[:, b:d], core)
        return whiten(white, vectors, shrinkage)

    return product


def _build_rows(widths, jit=plain):
    """``(V, G, A, B, scale, vectors, shrinkage) -> gradients in A, B and the scale``.

    With ``W = P^{-1/2} V``, ``H = P^{-1/2} G`` and S the scale, those of ``sum((S H) * (K (S W)))``.
    """
    whiten, starts = jit(root_inverse), _starts(widths)

    @jit
    def rows(V, G, A, B, scale, vectors, shrinkage):
        vectors = np.ascontiguousarray(vectors)
        W = whiten(np.ascontiguousarray(V), vectors, shrinkage)
        H = whiten(np.ascontiguousarray(G), vectors, shrinkage)
        column = scale.copy().reshape((-1, 1))
        left, right = column * H, column * W
        dA, dB, slope = np.zeros(A.shape), np.zeros(B.shape), np.zeros(scale.shape)
        for t in range(len(starts) - 1):
            (a, b), (c, d) = starts[t], starts[t + 1]
            At, Bt = A[:, a:c], B[:, b:d]
            C, E = project_rows(At, Bt, right), project_rows(At, Bt, left)
            for core, other in ((C, left), (E, right)):
                more_a, more_b = rows_gradient(At, Bt, core, other)
                dA[:, a:c] += more_a
                dB[:, b:d] += more_b
            slope += (H * apply_rows(At, Bt, C) + W * apply_rows(At, Bt, E)).sum(axis=1)
        return dA, dB, slope

    return rows


def _starts(widths):
    """First columns of each term in A and in B, and the end."""
    ends = np.cumsum([[0, 0], *np.reshape(widths, (-1, 2))], axis=0)
    return tuple((int(a), int(b)) for a, b in ends)


@register_numba(PreconditionedProduct)
def numba_preconditioned_product(op):
    return _build_product(op.widths, nb.numba_njit)


@register_numba(PreconditionedRows)
def numba_preconditioned_rows(op):
    return _build_rows(op.widths, nb.numba_njit)


def _jax_terms(widths, A, B):
    starts = _starts(widths)
    for (a, b), (c, d) in pairwise(starts):
        yield A[:, a:c], B[:, b:d], slice(a, c), slice(b, d)


@register_jax(PreconditionedProduct)
def jax_preconditioned_product(op):
    project, apply = jax_row_kronecker_project(None), jax_row_kronecker_apply(None)

    def forward(V, A, B, scale, vectors, shrinkage):
        white = root_inverse(V, vectors, shrinkage)
        column = scale[:, None]
        scaled = column * white
        for At, Bt, _, _ in _jax_terms(op.widths, A, B):
            white = white + column * apply(At, Bt, project(At, Bt, scaled))
        return root_inverse(white, vectors, shrinkage)

    return forward


@register_jax(PreconditionedRows, differentiable=False)
def jax_preconditioned_rows(op):
    project, apply = jax_row_kronecker_project(None), jax_row_kronecker_apply(None)
    gradient = jax_row_kronecker_rows(None)

    def forward(V, G, A, B, scale, vectors, shrinkage):
        W, H = (root_inverse(x, vectors, shrinkage) for x in (V, G))
        left, right = scale[:, None] * H, scale[:, None] * W
        dA, dB, slope = 0.0 * A, 0.0 * B, 0.0 * scale
        for At, Bt, a, b in _jax_terms(op.widths, A, B):
            C, E = project(At, Bt, right), project(At, Bt, left)
            for core, other in ((C, left), (E, right)):
                more_a, more_b = gradient(At, Bt, core, other)
                dA, dB = dA.at[:, a].add(more_a), dB.at[:, b].add(more_b)
            slope = slope + (H * apply(At, Bt, C) + W * apply(At, Bt, E)).sum(axis=1)
        return dA, dB, slope

    return forward
