"""Kernels between grids as structured operators."""

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.cov.products import Factor, ProductTerm, product_terms
from pymc_scalable_gp.linops.base import LinearOperator, Sum
from pymc_scalable_gp.linops.structured import Dense, Kronecker, Masked, Toeplitz
from pymc_scalable_gp.methods.kmcg.regular_grid import DENSE_AXIS, RegularGrid
from pymc_scalable_gp.utils.warn import warn

# From this number of rows on, a product with the kernel matrix costs much more than one axis by axis.
MANY_ROWS = 1000

# Cost of an FFT along an axis, as a multiple of one multiplication per cell.
FFT_PASSES = 20


def kernel_operator(cov_func, rows: RegularGrid, columns: RegularGrid) -> LinearOperator:
    """Covariances between observed cells of two grids; ValueError for no sum of product kernels."""
    terms = []
    for term in product_terms(cov_func, len(rows.axes)):
        if term.dims and max(term.dims) >= len(rows.axes):
            raise ValueError(
                f"the kernel uses column {max(term.dims)}, but the grid has {len(rows.axes)} columns"
            )
        factors = [_factor(term, i, rows, columns) for i in range(len(rows.axes))]
        terms.append(term.scale * Kronecker(factors))
    total = terms[0] if len(terms) == 1 else Sum(terms)
    if rows.observed is None and columns.observed is None:
        return total
    kept = [np.arange(g.size) if g.observed is None else g.places for g in (rows, columns)]
    return Masked(total, *kept)


def _factor(term, column, rows, columns):
    """1-D kernel matrix between two axes: Toeplitz where that is faster."""
    a, b = rows.axes[column], columns.axes[column]
    factor = factor_of(term, column)
    same = a is b or np.array_equal(a, b)
    even = factor is not None and factor.stationary and rows.spacing(column) is not None
    if same and even and len(a) > DENSE_AXIS:
        return Toeplitz(axis_kernel(term, column, b, b[:1]).reshape((len(b),)))
    return Dense(axis_kernel(term, column, a, b))


def factor_of(term: ProductTerm, column: int) -> Factor | None:
    """The term's kernel of a column; None where it has none."""
    return next((factor for factor in term.factors if factor.dim == column), None)


def axis_kernel(term: ProductTerm, column: int, a, b) -> TensorVariable:
    """The term's kernel matrix between coordinates (na,) and (nb,) of a column; ones without one."""
    factor = factor_of(term, column)
    if factor is None:
        return pt.ones((a.shape[0], b.shape[0]))
    found = factor.plain_gram(a, b).astype("float64")
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return found.reshape((len(a), len(b)))  # a static shape
    return found


def warn_of_grid(cov_func, X: np.ndarray) -> None:
    """Warn if rows (n, d) are cells of a grid, whose products with the kernel are much cheaper."""
    if len(X) < MANY_ROWS:
        return
    try:
        grid, _ = RegularGrid.from_points(X)
        kernel_operator(cov_func, grid, grid)
    except ValueError:
        return  # no grid, or no product kernel
    even = [len(a) > DENSE_AXIS and grid.spacing(i) is not None for i, a in enumerate(grid.axes)]
    passes = sum(FFT_PASSES if e else len(a) for e, a in zip(even, grid.axes, strict=True))
    if grid.size * passes < 0.1 * len(X) ** 2:
        warn(
            f"the {len(X)} rows of X lie on a grid, {grid}, and KMCG multiplies by their whole kernel "
            "matrix at each step: with grid, order = sgp.RegularGrid.from_points(X) give grid in place "
            "of X, and y[order]"
        )
