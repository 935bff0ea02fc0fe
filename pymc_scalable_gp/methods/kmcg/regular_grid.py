"""Data on a grid, some cells of which may be missing."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
import xarray as xr
from pytensor.graph.basic import Variable

from pymc_scalable_gp.core.data.inputs import DATES, TEXT, check_inputs, refuse_masked
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.graphs import present_value

# An axis is equally spaced when its steps differ by less than this share of their mean.
EQUAL_SPACING = 1e-6

# Share of an axis by which two coordinates differ that are one, but for rounding.
ROUNDING = 1e-9

# Axes up to this length get a dense factor: products with it are then faster than by FFT.
DENSE_AXIS = 256


class RegularGrid:
    """Inputs on the grid ``axes[0] x axes[1] x ...``, of which some cells are observed.

    Parameters
    ----------
    axes : sequence of arrays, shapes (G_1,), ..., (G_d,)
        Strictly increasing coordinates. Equal spacing is used where it is found; it is not needed.
    observed : bool array, shape (G_1, ..., G_d), optional
        Cells that have data; all when left out. Masked cells have none.

    Raises
    ------
    TypeError, ValueError
        For axes that are not finite or not strictly increasing, a mask of another shape or dtype, or
        one without an observed cell.

    See Also
    --------
    KMCGMarginal : The GP that takes it.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> raster = np.array([[1.0, 2.0, np.nan], [4.0, 5.0, 6.0]])
    >>> latitude, longitude = np.array([50.0, 51.0]), np.array([3.0, 4.0, 5.0])
    >>> grid = sgp.RegularGrid([latitude, longitude], observed=~np.isnan(raster))
    >>> grid
    RegularGrid(2 x 3, 5 of 6 cells observed)
    >>> with pm.Model():
    ...     gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=2.0))
    ...     _ = gp.marginal_likelihood("y", X=grid, y=raster, sigma=0.1)
    ...     filled, var = gp.predict(sgp.RegularGrid(grid.axes), {}, diag=True)
    >>> filled.reshape(grid.shape).round(1)
    array([[1.1, 2.1, 3.3],
           [3.9, 5.1, 5.9]])
    """

    def __init__(self, axes, observed=None):
        self.axes = tuple(_check_axis(axis, i) for i, axis in enumerate(axes))
        if not self.axes:
            raise ValueError("axes must hold at least one axis")
        # Of an xarray.DataArray: names of the axes, and the date from which each counts, if it holds dates.
        self.names: tuple[str, ...] = ()
        self.dates: tuple[np.datetime64 | None, ...] = ()
        self.observed: np.ndarray | None = None
        self.observed = _check_mask(self._in_order(observed, "observed"), self.shape)

    def __repr__(self):
        sizes = " x ".join(map(str, self.shape))
        return f"RegularGrid({sizes}, {self.n} of {self.size} cells observed)"

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of cells, observed or not."""
        return int(np.prod(self.shape))

    @property
    def places(self) -> np.ndarray | None:
        """Positions of the observed cells in the raveled grid, or None: all."""
        return None if self.observed is None else np.flatnonzero(self.observed)

    @property
    def n(self) -> int:
        """Number of observed cells."""
        return self.size if self.observed is None else int(self.observed.sum())

    @property
    def points(self) -> np.ndarray:
        """Coordinates (n, d) of the observed cells, last axis fastest."""
        places = np.arange(self.size) if self.observed is None else self.places
        indices = np.unravel_index(places, self.shape)
        return np.column_stack([axis[i] for axis, i in zip(self.axes, indices, strict=True)])

    def spacing(self, axis: int) -> float | None:
        """Step of an equally spaced axis, or None."""
        steps = np.diff(self.axes[axis])
        if not len(steps):
            return None
        mean = steps.mean()
        return float(mean) if np.abs(steps - mean).max() <= EQUAL_SPACING * mean else None

    def first_date(self, name: str) -> np.datetime64:
        """The date from which an axis counts; ValueError for a grid that holds no dates of that name."""
        found = dict(zip(self.names, self.dates, strict=True)).get(name)
        if found is None:
            raise ValueError(f"like= has no dates along {name}: give the grid that from_xarray made")
        return found

    def ravel(self, y, name: str = "y") -> np.ndarray:
        """Values (n,) at the observed cells, from an array of the grid's shape or of those values.

        A DataArray is taken by its dimensions and coordinates.

        Raises
        ------
        ValueError
            For another shape, other coordinates, or a value at an observed cell that is NaN, infinite or
            masked.
        """
        y = self._in_order(y, name)
        if isinstance(y, np.ma.MaskedArray):
            y = y.astype("float64").filled(np.nan)
        y = np.asarray(y, dtype="float64")
        if y.shape == self.shape:
            y = y.ravel() if self.observed is None else y[self.observed]
        elif y.shape != (self.n,):
            raise ValueError(
                f"{name} must have the grid's shape {self.shape} or one value for each of the "
                f"{self.n} observed cells, got shape {y.shape}"
            )
        bad = int((~np.isfinite(y)).sum())
        if bad:
            raise ValueError(
                f"{name} has {bad} NaN or infinite values at cells that count as observed (masked "
                f"values are NaN): pass RegularGrid(axes, observed=np.isfinite({name}))"
            )
        return y

    def _in_order(self, data, name):
        """A DataArray in the order of the axes, by its dimensions and coordinates; others as they are.

        Raises ValueError for coordinates of other cells.
        """
        if not isinstance(data, xr.DataArray):
            return data
        if sorted(map(str, data.dims)) == sorted(self.names):
            data = data.transpose(*sorted(data.dims, key=lambda dim: self.names.index(str(dim))))
        axes = self.axes if data.shape == self.shape else self.points.T
        for dim, axis, first in zip(data.dims, axes, self.dates or [None] * len(axes), strict=False):
            if dim not in data.coords or data.sizes[dim] != len(axis):
                continue
            order = _order_along(data[dim].values, axis, first) if data.ndim == len(axes) else None
            if order is None:
                raise ValueError(
                    f"{name} has other coordinates along {dim} than the grid: select and sort its cells, "
                    f"or give {name}.values, which goes by place"
                )
            data = data.isel({dim: order})
        return data

    def unravel(self, values) -> np.ndarray:
        """Array of the grid's shape from values (n,) at the observed cells; NaN at the others."""
        out = np.full(self.size, np.nan)
        out[slice(None) if self.observed is None else self.places] = values
        return out.reshape(self.shape)

    @classmethod
    def from_points(cls, X) -> tuple["RegularGrid", np.ndarray]:
        """The grid that points (n, d) lie on, and the order that sorts them as its cells.

        An axis is completed where its steps are multiples of the smallest, to a thousandth of it: a series
        with gaps. Coordinates that differ by a billionth of the axis, by rounding, are one.

        Parameters
        ----------
        X : array, shape (n, d) or (n,)
            Distinct points.

        Returns
        -------
        grid : RegularGrid
        order : int array, shape (n,)
            ``grid.points`` is ``X[order]``, to a thousandth of a step; use ``y[order]``.

        Raises
        ------
        TypeError, ValueError
            For bad inputs, points that occur twice, or a grid with over 100 cells per point.
        """
        X = check_inputs(np.reshape(X, (-1, 1)) if np.ndim(X) == 1 else X).value
        axes = [_axis_of(column) for column in X.T]
        size = float(np.prod([len(axis) for axis in axes]))
        if size > 100.0 * max(len(X), 100):
            raise ValueError(
                f"{len(X)} points would need a grid of {size:.3g} cells: they do not lie on one; pass "
                "X as an array"
            )
        shape = tuple(len(axis) for axis in axes)
        along = [np.interp(x, axis, np.arange(len(axis))) for axis, x in zip(axes, X.T, strict=True)]
        places = np.ravel_multi_index(np.rint(along).astype(int), shape)
        order = np.argsort(places)
        if len(np.unique(places)) < len(places):
            raise ValueError("some points occur twice: average their targets, or pass X as an array")
        observed = np.zeros(shape, dtype=bool)
        observed.ravel()[places] = True
        return cls(axes, None if observed.all() else observed), order

    @classmethod
    def from_xarray(
        cls, data: xr.DataArray, like: "RegularGrid | None" = None
    ) -> tuple["RegularGrid", np.ndarray]:
        """The grid of a DataArray's coordinates, and its values (n,) that are not NaN.

        Decreasing coordinates are reversed; dates count in days since the first, or since that of a grid
        `like` this one, such as that of the training data. ValueError for infinite values.
        """
        if not isinstance(data, xr.DataArray):
            raise TypeError(f"data must be an xarray.DataArray, got {type(data).__name__}")
        data = data.sortby([dim for dim in data.dims if dim in data.coords])
        axes, dates = [], []
        for dim in data.dims:
            axis, first = data[dim].values, None
            if axis.dtype.kind == "M":
                first = axis[0] if like is None else like.first_date(str(dim))
                axis = _days(axis, first)
            axes.append(axis)
            dates.append(first)
        values = data.values.astype("float64")
        observed = ~np.isnan(values)
        grid = cls(axes, None if observed.all() else observed)
        grid.names, grid.dates = tuple(map(str, data.dims)), tuple(dates)
        return grid, grid.ravel(values)


def _days(dates, first) -> np.ndarray:
    """Days since the first."""
    return (dates - first) / np.timedelta64(1, "D")


def _order_along(found, axis, first) -> np.ndarray | None:
    """Order that makes coordinates those of an axis, which may count from a date; None for others.

    What cannot be compared with an axis, such as dates with numbers, has to increase as that does.
    """
    if found.dtype.kind == "M" and first is not None:
        found = _days(found, first)
    if found.dtype.kind not in "fiu":
        return np.arange(len(found)) if (found[1:] > found[:-1]).all() else None
    order = np.argsort(found, kind="stable")
    # What single precision makes of coordinates is less, and steps are more.
    near = min(1e-3 * np.diff(axis).min(initial=np.inf), 1e-6 * np.abs(axis).max())
    return order if np.abs(found[order] - axis).max() <= near else None


def check_dates(new: RegularGrid | None, old: RegularGrid | None, name: str) -> None:
    """Raise ValueError for a grid whose dates count from others than those of the training grid."""
    if new is None or old is None:
        return
    for axis, own, first in zip(new.names, new.dates, old.dates):  # noqa: B905  other grids have no dates
        if own != first:
            here, there = ("numbers" if date is None else f"days since {date}" for date in (own, first))
            raise ValueError(
                f"{name} has {axis} in {here}, the grid of the likelihood in {there}: take "
                "RegularGrid.from_xarray(data, like=grid) with that grid, of data with dates if it has them"
            )


def at_cells(grid: RegularGrid, values, name: str):
    """Values (n,) at the observed cells, as `RegularGrid.ravel`, of tensors too; scalars as they are."""
    if np.ndim(values) == 0:
        return values
    if not isinstance(values, Variable):
        return grid.ravel(values, name)
    if values.ndim != len(grid.axes):
        return values
    present = present_value(values)
    shape = values.type.shape if present is None else present.shape
    if values.ndim == 1:
        shape = tuple(evaluate([values.shape])[0]) if None in shape else shape
        if grid.places is None or shape != grid.shape:
            return values
    if any(length not in (None, own) for length, own in zip(shape, grid.shape, strict=True)):
        raise ValueError(f"{name} must have the grid's shape {grid.shape}, got shape {shape}")
    flat = pt.specify_shape(values, grid.shape).ravel()
    return flat if grid.places is None else flat[grid.places]


@dataclass(frozen=True, eq=False)
class SharedAxes:
    """Axes that hold the coordinates of two grids, old and new, and the places of each grid's there."""

    both: list[np.ndarray]
    old: tuple[np.ndarray, ...]
    new: tuple[np.ndarray, ...]
    places: np.ndarray  # observed cells of the new grid; the old one is complete

    @classmethod
    def of(cls, old: RegularGrid, new: RegularGrid) -> "SharedAxes":
        """Axes of two grids together."""
        both = [np.union1d(a, b) for a, b in zip(old.axes, new.axes, strict=True)]
        found = (
            tuple(np.searchsorted(axis, own) for axis, own in zip(both, grid.axes, strict=True))
            for grid in (old, new)
        )
        return cls(both, *found, np.arange(new.size) if new.places is None else new.places)

    def cells(self, places) -> np.ndarray:
        """Places among all cells of those of a grid, from the places, `old` or `new`, of its axes."""
        shape = [len(axis) for axis in self.both]
        return np.ravel_multi_index(np.ix_(*places), shape).ravel()


def _check_axis(axis, place):
    refuse_masked(axis, f"axes[{place}]")
    axis = np.asarray(axis)
    if (kind := axis.dtype.kind) not in "fiu":
        way = f": {DATES}" if kind in "mMO" else f": {TEXT}" if kind in "US" else ""
        way += ", or take RegularGrid.from_xarray" if kind == "M" else ""
        raise TypeError(f"axes[{place}] must be numeric, got dtype {axis.dtype}{way}")
    axis = axis.astype("float64")
    if axis.ndim != 1 or not len(axis):
        raise ValueError(
            f"axes[{place}] must be a vector of coordinates, got shape {axis.shape}: "
            "axes= is a list, RegularGrid([axis]) of one"
        )
    if not np.isfinite(axis).all():
        raise ValueError(f"axes[{place}] has {(~np.isfinite(axis)).sum()} NaN or infinite values")
    steps = np.diff(axis)
    if len(steps) and (steps < 0).all():
        raise ValueError(
            f"axes[{place}] is decreasing, from {axis[0]:g} to {axis[-1]:g}: give axes[{place}][::-1] and "
            f"turn the data with np.flip(y, axis={place}), or use RegularGrid.from_xarray"
        )
    if (steps <= 0).any():
        where = int(np.flatnonzero(steps <= 0)[0])
        kind = "a duplicate value" if steps[where] == 0 else "a decrease"
        raise ValueError(
            f"axes[{place}] must be strictly increasing, but has {kind} at position {where + 1}: "
            "sort it (and the data), or use RegularGrid.from_points"
        )
    axis.flags.writeable = False
    return axis


def _check_mask(observed, shape):
    if observed is None:
        return None
    if isinstance(observed, np.ma.MaskedArray):
        observed = observed.filled(False)  # what is masked is not observed
    observed = np.array(observed)
    if observed.dtype != bool:
        raise TypeError(f"observed must be a bool array, got dtype {observed.dtype}")
    if observed.shape != shape:
        raise ValueError(f"observed must have the grid's shape {shape}, got {observed.shape}")
    if not observed.any():
        raise ValueError("observed marks no cell: there is nothing to condition on")
    observed.flags.writeable = False
    return observed


def _axis_of(column):
    """Values that differ by more than rounding, with all steps between where they are multiples of one."""
    values = np.unique(column)
    axis = values[np.diff(values, prepend=-np.inf) > ROUNDING * np.ptp(values)]
    if len(axis) < 3:
        return axis
    step = np.diff(axis).min()
    counts = (axis - axis[0]) / step
    step = (axis[-1] - axis[0]) / round(counts[-1])  # more accurate than one difference
    counts = (axis - axis[0]) / step
    whole = np.round(counts)
    if np.abs(counts - whole).max() > 1e-3 or whole[-1] > 100 * len(axis):
        return axis
    return axis[0] + step * np.arange(int(whole[-1]) + 1)
