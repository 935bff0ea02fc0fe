"""Properties of the data and the kernel on which the choice of a class depends."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.cov.objects import FromFunction
from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.cov.queries import describe, is_categorical, leaves, used_columns
from pymc_scalable_gp.methods.kmcg.kronecker import has_eigenbasis
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid
from pymc_scalable_gp.methods.statespace.markov import count_states
from pymc_scalable_gp.utils.graphs import is_random

# Grids with more axes have more cells than rows; one with a smaller share observed is of no use.
MOST_AXES, OBSERVED_SHARE = 4, 0.25


@dataclass(frozen=True)
class Facts:
    """Sizes of the data, and traits of the kernel and the likelihood."""

    n: int
    d: int  # columns that the kernel looks at
    distinct: int
    grid: RegularGrid | None
    kernel: str
    is_product: bool
    is_categorical: bool | None
    is_dear: bool  # a Python function of two objects
    is_free: bool
    is_normal: bool
    has_modes: bool = True  # the likelihood is one that `likelihood=` takes
    states: int | None = None  # of the kernel in state-space form, where it has one
    has_eigenbasis: bool = False  # the grid's, which makes the likelihood exact

    @property
    def suits_grids(self) -> bool:
        """Whether 1-D kernels between the nodes of a grid make up the kernel."""
        return self.is_product and self.is_categorical is False

    def in_words(self) -> str:
        """One sentence."""
        text = f"{self.n} rows of {self.d} input{'s' * (self.d > 1)}"
        if self.distinct < self.n:
            text += f", {self.distinct} of them distinct"
        if self.grid is not None:
            kind = "a regular series" if len(self.grid.axes) == 1 else "a grid"
            share = f"{self.grid.n / self.grid.size:.0%} observed"
            text += f", on {kind} of {' x '.join(map(str, self.grid.shape))} cells ({share})"
        traits = ["a product over the inputs" if self.is_product else "no product over the inputs"]
        traits += ["of categories"] * bool(self.is_categorical)
        traits += [f"Markov with {self.states} states"] * bool(self.states)
        traits += ["hyperparameters free" if self.is_free else "nothing free"]
        return f"{text}; kernel {self.kernel} ({', '.join(traits)})."


def find_facts(X, grid, cov_func, is_free: bool | None, is_normal: bool, has_modes: bool = True) -> Facts:
    """Look at all rows X (n, d) once; `is_free` None: as the kernel says. Missing columns raise."""
    columns, distinct = used_columns(cov_func, X.shape[1]), count_distinct(X)
    if grid is None and distinct == len(X) and len(columns) == X.shape[1]:
        grid = find_grid(X)
    try:
        product = bool(product_terms(cov_func))
    except ValueError:  # it says what is no product, and what would be
        product = False
    if is_free is None:
        is_free = is_random(kernel_matrix(cov_func, pt.constant(X[:2])))
    return Facts(
        n=len(X), d=len(columns), distinct=distinct, grid=grid, kernel=describe(cov_func),
        is_product=product, is_categorical=is_categorical(cov_func),
        is_dear=any(isinstance(leaf, FromFunction) for leaf in leaves(cov_func)),
        is_free=is_free, is_normal=is_normal, has_modes=has_modes,
        states=count_states(cov_func) if len(columns) == 1 else None,
        has_eigenbasis=product and grid is not None and has_eigenbasis(grid, cov_func),
    )  # fmt: skip


def count_distinct(X) -> int:
    """Number of distinct rows of X (n, d), by a random weighted sum of each: rows take long to sort."""
    weights = np.random.default_rng(0).standard_normal(X.shape[1])
    return len(np.unique(sum(w * column for w, column in zip(weights, X.T, strict=True))))


def find_grid(X) -> RegularGrid | None:
    """The grid that rows X (n, d) lie on, where it is of use; a single axis has to be evenly spaced."""
    if X.shape[1] > MOST_AXES or len(X) < 3:
        return None
    try:
        grid, _ = RegularGrid.from_points(X)
    except ValueError:  # too many cells, once gaps are filled, or two points in one of them
        return None
    even = X.shape[1] > 1 or grid.spacing(0) is not None
    return grid if even and grid.n >= OBSERVED_SHARE * grid.size else None
