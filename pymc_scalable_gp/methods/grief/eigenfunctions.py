"""Eigenfunctions of one product kernel on a Cartesian grid, in a basis that is fixed once."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.cov.products import ProductTerm
from pymc_scalable_gp.methods.grief.grid import top_products
from pymc_scalable_gp.ops.inverse_cholesky import inverse_cholesky
from pymc_scalable_gp.ops.khatri_rao import ColumnProducts, khatri_rao_features
from pymc_scalable_gp.ops.stacked_product import stacked_product
from pymc_scalable_gp.utils.graphs import fixed_shared
from pymc_scalable_gp.utils.jitter import GRAM_JITTER

# Eigenvalues of a 1-D grid matrix, and mean squares, below this share of the largest are rounding.
EIGENVALUE_CUTOFF = 1e-10
# Hadamard powers tried for the directions that are rounding at the fixed hyperparameters.
POWERS = 6


@dataclass(frozen=True)
class TermGrid:
    """Frozen grid of one product term: nodes (d, m), basis ``V_i^1/2 Q_i`` (d, m, q), table (r, d).

    The columns of the basis are the leading ones that any row of the table names; unused places of
    nodes have zeros there.
    """

    term: ProductTerm
    nodes: np.ndarray
    basis: np.ndarray
    selection: np.ndarray

    @property
    def rank(self) -> int:
        """Number of features r."""
        return len(self.selection)

    @cached_property
    def _tensors(self):
        """Nodes, basis, and the products of their columns: data, for graphs."""
        d, _, q = self.basis.shape
        products = ColumnProducts.of(self.selection + q * np.arange(d))
        return fixed_shared(self.nodes), fixed_shared(self.basis), products

    def factors(self, X):
        """``psi_{i, a}(x_i)``, (d, q, n): columns of ``k_i(x_i, U_i) V_i^1/2 Q_i L_i^-T``.

        ``L_i L_i' = (V_i^1/2 Q_i)' k_i(U_i, U_i) V_i^1/2 Q_i`` with a jitter. At the hyperparameters
        where ``Q_i`` diagonalises it, these are the eigenfunctions; elsewhere they are a smooth
        function of the hyperparameters, which eigenvectors are not: those of equal eigenvalues turn
        at random, those of crossing ones swap.
        """
        nodes, basis, _ = self._tensors
        gram = self.term.gram(nodes, nodes)
        inner = stacked_product(stacked_product(basis, gram, transpose_a=True), basis)
        projection = stacked_product(basis, inverse_cholesky(inner), transpose_b=True)
        # The scale enters once, where it costs no pass over n r entries.
        projection = pt.set_subtensor(projection[0], projection[0] * pt.sqrt(self.term.scale))
        cross = self.term.gram(nodes, X[:, self.term.dims].T)
        return stacked_product(projection, cross, transpose_a=True)

    def features(self, X):
        """``phi_j(x) = sqrt(scale) prod_i psi_{i, table[j, i]}(x_i)``, (n, r)."""
        if not self.term.dims:  # a constant kernel
            return pt.sqrt(self.term.scale) * pt.ones_like(X[:, :1])
        d, _, q = self.basis.shape
        flat = self.factors(X).reshape((d * q, X.shape[0]))
        return khatri_rao_features(flat.T, self._tensors[2])


def frozen_basis(gram: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Basis ``V^1/2 Q`` (m, m) of one column: eigenvectors of ``V^1/2 K V^1/2``, leading ones first.

    Eigenvectors whose eigenvalue is rounding would be noise, yet a shorter lengthscale may lift
    them. They are those of a Hadamard power of K instead, positive semidefinite as K is (Schur) and
    of a shorter lengthscale, in the space that is left.
    """
    root = np.sqrt(masses)
    power = gram / max(np.abs(gram).max(), np.finfo(float).tiny)
    columns, rest = [], np.eye(masses.size)
    for attempt in range(POWERS + 1):
        values, vectors = np.linalg.eigh(rest.T @ (power * root[:, None] * root) @ rest)
        values, vectors = values[::-1], vectors[:, ::-1]
        keep = values > EIGENVALUE_CUTOFF * (masses @ np.diag(power))
        if attempt == POWERS:
            keep[:] = True
        columns.append(rest @ vectors[:, keep])
        rest = rest @ vectors[:, ~keep]
        if rest.shape[1] == 0:
            break
        power = power**4
    return root[:, None] * np.hstack(columns)


def column_factors(gram: np.ndarray, cross: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """`TermGrid.factors` of one column (m, n), as arrays: ``L^-1 basis' k(U, x)``."""
    inner = basis.T @ gram @ basis
    jitter = GRAM_JITTER * np.trace(inner) * np.eye(len(inner))
    try:
        lower = np.linalg.cholesky(inner + jitter)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the kernel matrix of a column's nodes is not positive semidefinite at the "
            "hyperparameters of the build: give build(X, point=...) other ones"
        ) from error
    return np.linalg.solve(lower, basis.T @ cross)


def select(factors: np.ndarray, used: np.ndarray, rank: int, fixed: bool) -> np.ndarray:
    """Table (r, d) of the products with the largest mean square on the data, column by column.

    Parameters
    ----------
    factors : array, shape (d, m, n)
        One-dimensional functions at some rows and hyperparameters.
    used : boolean array, shape (d, m)
        Places that hold a function.
    rank : int
        Number of products wanted.
    fixed : bool
        The hyperparameters cannot move: functions that are rounding now are so for ever, and go.
        Otherwise they come last, in their order, since a later lengthscale may lift them.

    Notes
    -----
    The eigenvalues are close to these mean squares, as the nodes' masses follow the data, but know
    no more of the data than the nodes do.
    """
    scores = np.mean(np.square(factors), axis=2)
    alive = (scores > EIGENVALUE_CUTOFF * scores.max(axis=1, keepdims=True)) & used
    depth = np.cumsum(~alive, axis=1)
    least = np.min(scores, axis=1, where=alive, initial=np.inf, keepdims=True)
    logs = np.log(np.where(alive, scores, least)) - 5.0 * depth * ~alive
    logs = np.where(alive if fixed else used, logs, -np.inf)
    order = np.argsort(-logs, axis=1, kind="stable")
    places = top_products(np.take_along_axis(logs, order, axis=1), rank)
    idx = np.take_along_axis(order.T, places, axis=0)
    return idx[np.isfinite(np.take_along_axis(logs.T, idx, axis=0)).all(axis=1)]
