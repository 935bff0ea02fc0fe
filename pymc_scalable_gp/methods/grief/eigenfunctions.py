"""Eigenfunctions of one product kernel on a Cartesian grid, in a fixed basis."""

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

# Eigenvalues of a 1-D grid matrix, and mean squares, below this share of the largest are rounding errors.
EIGENVALUE_CUTOFF = 1e-10
# Hadamard powers tried for directions whose eigenvalues are rounding errors at the build's hyperparameters.
POWERS = 6


@dataclass(frozen=True)
class TermGrid:
    """Fixed grid of one product term: nodes (d, m), basis ``V_i^1/2 Q_i`` (d, m, q), table (r, d).

    The basis has the leading q columns, as many as the table refers to; places of nodes that are not used
    have zeros there.
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
    def places(self) -> np.ndarray:
        """Table (r, d) of places among the basis functions of all columns, d q of them."""
        d, _, q = self.basis.shape
        return self.selection + q * np.arange(d)

    @cached_property
    def products(self) -> ColumnProducts:
        """The basis functions that each feature multiplies."""
        return ColumnProducts.of(self.places)

    @cached_property
    def _tensors(self):
        """Nodes and basis, for graphs."""
        return fixed_shared(self.nodes), fixed_shared(self.basis)

    def inner(self):
        """``(V_i^1/2 Q_i)' k_i(U_i, U_i) V_i^1/2 Q_i``, (d, q, q)."""
        nodes, basis = self._tensors
        gram = self.term.gram(nodes, nodes)
        return stacked_product(stacked_product(basis, gram, transpose_a=True), basis)

    def factors(self, X):
        """``psi_{i, a}(x_i)``, (d, q, n): columns of ``k_i(x_i, U_i) V_i^1/2 Q_i L_i^-T``.

        ``L_i L_i'`` is :meth:`inner` with a jitter. At the hyperparameters where ``Q_i`` diagonalises it,
        these are the eigenfunctions; elsewhere they are a smooth function of the hyperparameters, which
        eigenvectors are not: those of equal eigenvalues rotate, those of crossing ones swap.
        """
        nodes, basis = self._tensors
        projection = stacked_product(basis, inverse_cholesky(self.inner()), transpose_b=True)
        # The scale enters here, once, and not by a pass over n r entries.
        projection = pt.set_subtensor(projection[0], projection[0] * pt.sqrt(self.term.scale))
        cross = self.term.gram(nodes, X[:, self.term.dims].T)
        return stacked_product(projection, cross, transpose_a=True)

    def features(self, X):
        """``phi_j(x) = sqrt(scale) prod_i psi_{i, table[j, i]}(x_i)``, (n, r)."""
        if not self.term.dims:  # a constant kernel
            return pt.sqrt(self.term.scale) * pt.ones_like(X[:, :1])
        d, _, q = self.basis.shape
        flat = self.factors(X).reshape((d * q, X.shape[0]))
        return khatri_rao_features(flat.T, self.products)


def frozen_basis(gram: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Basis ``V^1/2 Q`` (m, m) of one column: eigenvectors of ``V^1/2 K V^1/2``, leading ones first.

    Eigenvectors whose eigenvalues are rounding errors would be noise, yet they matter at shorter
    lengthscales. In the space that is left they are those of a Hadamard power of K instead, which is
    positive semidefinite as K is (Schur) and has a shorter lengthscale.
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
    """`TermGrid.factors` of one column (m, n), in numbers: ``L^-1 basis' k(U, x)``."""
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
    """Table (rank, d) of the products with the largest mean square on the data, column by column.

    `factors` (d, m, n) are one-dimensional functions at n rows and the build's hyperparameters, `used`
    (d, m) the places that have one. Functions that are rounding errors are left out where the
    hyperparameters are `fixed`; otherwise they come last, in their order, since they matter at other
    lengthscales. Eigenvalues are close to these mean squares, since the nodes' masses follow the data, but
    depend on the data through the nodes alone.
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
