"""A function for each group of rows, independent of those of the others."""

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.cov import Covariance, Exponential, ExpQuad, Matern12, Matern32, Matern52, Stationary
from pytensor.graph.basic import Constant
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.cov.embedded import Embedded, EmbeddedKernel, check_stationary
from pymc_scalable_gp.cov.kernels import Traits
from pymc_scalable_gp.ops.square_distances import BY_PRODUCT
from pymc_scalable_gp.utils.compiled import present_shape
from pymc_scalable_gp.utils.internals import own_columns

# These are 0 in double precision at such a distance: groups lie so far apart, and need no mask.
_FAR = 2000.0
_VANISH = (ExpQuad, Matern12, Exponential, Matern32, Matern52)


class SameGroup(Covariance):
    """``[g = h] scale_g^2`` for the codes g, h in a column; 1 for one group `only`, 0 for all others."""

    traits = Traits(stationary=False, categorical=True)

    def __init__(self, input_dim, group_dim, scale=None, only=None):
        super().__init__(input_dim, [group_dim])
        self.scale, self.only = scale, only

    def full(self, X, Xs=None):
        """Kernel matrix."""
        X, Xs = own_columns(self, X, Xs)
        left = X[:, 0]
        right = left if Xs is None else Xs[:, 0]
        same = pt.eq(left[:, None], right)
        return same * self._scales(left)[:, None] * self._scales(right)

    def diag(self, X):
        """Prior variances."""
        X, _ = own_columns(self, X)
        return self._scales(X[:, 0]) ** 2

    def _scales(self, codes):
        if self.only is None:
            return of_codes(self.scale, codes) * pt.ones_like(codes)
        return pt.eq(codes, self.only).astype("float64")


class PerGroup(EmbeddedKernel):
    r"""A function for each group of rows, independent of the others', with its own lengthscale and scale.

    .. math:: k\bigl((x, g), (z, h)\bigr) = [g = h]\; s_g^2\; k_0(|x - z| / \ell_g)

    ``eta0**2 * k + PerGroup(...)`` is the hierarchical GP: a common function, and how each group departs
    from it.

    Parameters
    ----------
    kernel : subclass of pm.gp.cov.Stationary
        k0, for instance ``pm.gp.cov.Matern52``.
    input_dim : int
        Number of columns of X, that of the groups among them.
    ls : scalar or vector, shape (G,)
        Lengthscales, one for all groups or one for each; may be random.
    scale : scalar or vector, shape (G,)
        Prior standard deviations s, likewise.
    group_dim : int
        Column with the groups, as whole numbers 0, 1, ..., G - 1.
    active_dims : sequence of int, optional
        Columns x; all but `group_dim` when left out.
    **params
        Further arguments of `kernel`, the same for all groups, such as the alpha of a ``RatQuad``.

    Raises
    ------
    TypeError, ValueError
        For anything but a class of stationary kernels; for vectors of different lengths; for codes that
        are no whole numbers or, where `ls` or `scale` is a vector, have no entry in it. In data that are
        replaced later, and where the kernel is called by itself, such codes give NaN.

    Notes
    -----
    A group that the training rows lack has the prior where `ls` and `scale` are scalars, or vectors with an
    entry for it; one beyond a vector's entries is refused. Without neighbours, ``GriefGP``, CholQR and
    SoftKI take several of its rows for independent, given what the rest of the kernel says of them, and
    warn where these are predicted jointly; SKIP refuses a group that ``build(X)`` did not see.

    The rows are scaled by their group's lengthscale, and groups are put so far apart that one stationary
    kernel of all rows vanishes between them: what is compiled does not depend on G, and a kernel matrix
    costs what that of one group of as many rows does. Neighbours are rows of the same group as long as
    there are any within 2000 lengthscales. ``GriefGP`` and SKIP take one product of kernels per group, or
    one for all groups where `ls` is a scalar.

    References
    ----------
    .. [1] Hensman, J., Lawrence, N. D. and Rattray, M. (2013). Hierarchical Bayesian modelling of gene
       expression time series across irregularly sampled replicates and clusters. BMC Bioinformatics
       14:252. https://doi.org/10.1186/1471-2105-14-252

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.array([[0.0, 0], [1.0, 0], [0.0, 1], [1.0, 1]])  # a time, and a group
    >>> cov = sgp.cov.PerGroup(pm.gp.cov.Matern12, 2, ls=[1.0, 2.0], scale=[1.0, 3.0], group_dim=1)
    >>> cov(X).eval().round(3)
    array([[1.   , 0.368, 0.   , 0.   ],
           [0.368, 1.   , 0.   , 0.   ],
           [0.   , 0.   , 9.   , 5.459],
           [0.   , 0.   , 5.459, 9.   ]])
    >>> print((9 * np.exp(-0.5)).round(3))
    5.459
    """

    traits = replace(EmbeddedKernel.traits, categorical=True)

    def __init__(
        self, kernel: type[Stationary], input_dim: int, *, ls, scale=1.0, group_dim: int,
        active_dims=None, **params,
    ):  # fmt: skip
        check_stationary(
            kernel, params, "Matern52",
            "does not fall with the distance: for periodic functions of each group multiply it with a "
            "sgp.cov.PerGroup of another kernel",
        )  # fmt: skip
        columns = range(input_dim) if active_dims is None else active_dims
        columns = [int(column) for column in columns if column != group_dim]
        if not columns or not 0 <= group_dim < input_dim:
            raise ValueError(
                f"PerGroup takes a column of groups and at least one other of input_dim={input_dim} "
                f"columns, got group_dim={group_dim}, active_dims={active_dims}"
            )
        super().__init__(input_dim, [*columns, group_dim])
        self.kernel, self.group_dim, self.params = kernel, group_dim, params
        self.category_dims = [group_dim]  # of the active ones, those with categories
        self.ls, self.scale = _checked("ls", ls), _checked("scale", scale)
        self._present_count()

    def of_columns(self, columns, origin=None) -> Embedded:
        """A stationary kernel of scaled rows, whose groups are far apart."""
        columns = columns.astype("float64")
        inputs, codes = columns[:, :-1], self._valid(columns[:, -1])
        ls, scale = of_codes(self.ls, codes), of_codes(self.scale, codes)
        moved = inputs if origin is None else inputs - origin[:-1]
        scaled, count = moved / (ls[:, None] if ls.ndim else ls), len(self.active_dims) - 1
        inputs = scaled if self.ls.ndim else inputs
        rates = pt.ones(count) if self.ls.ndim else self.ls * pt.ones(count)
        apart = codes[:, None]
        places = pt.concatenate([scaled, _FAR * apart], axis=1)
        if self.kernel not in _VANISH or count >= BY_PRODUCT:
            scale = pt.where(pt.isnan(codes), np.nan, scale)
            kernel = self.kernel(count, ls=rates, **self.params)
            return Embedded(kernel, inputs, places, columns, scale, codes)
        kernel = self.kernel(count + 1, ls=pt.concatenate([rates, [1.0]]), **self.params)
        inputs = pt.concatenate([inputs, _FAR * apart], axis=1)
        return Embedded(kernel, inputs, places, columns, scale)

    def _present_count(self) -> int | None:
        """Number of groups that the vectors have entries for at present; None where nothing says it."""
        lengths = [present_shape(v)[0] for v in (self.ls, self.scale) if v.ndim]
        known = set(lengths) - {None}
        if len(known) > 1:
            raise ValueError(
                f"ls has {lengths[0]} entries and scale {lengths[1]}: give each a scalar or a vector with "
                "an entry for each group"
            )
        return known.pop() if known else None

    def _valid(self, codes):
        """The codes (n,), NaN where there is no such group."""
        valid = pt.eq(codes, pt.round(codes)) & (codes >= 0.0)
        for vector in (self.ls, self.scale):
            if vector.ndim:
                valid = valid & (codes < vector.shape[0])
        return pt.where(valid, codes, np.nan)

    def check_rows(self, X: np.ndarray, name: str) -> None:
        """Raise ValueError for codes that are no whole numbers, or have no entry in the vectors."""
        codes, count = X[:, self.group_dim], self._present_count()
        bad = (codes != np.round(codes)) | (codes < 0)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"column {self.group_dim} of {name} holds groups, whole numbers 0, 1, ..., but row {row} "
                f"has {codes[row]:g}: number them, new rows as X: pd.Categorical(groups, levels).codes"
            )
        if count is not None and (codes >= count).any():
            row = int(np.flatnonzero(codes >= count)[0])
            raise ValueError(
                f"column {self.group_dim} of {name} holds groups, but row {row} has {codes[row]:g}, and ls "
                f"or scale has entries for {count} groups, 0 to {count - 1}: give them an entry for each "
                "group, or scalars, with which a new group has the prior (SKIP refuses it)"
            )

    def as_products(self) -> pm.gp.cov.BaseCovariance | None:
        """One product for all groups where they share a lengthscale, else one per group."""
        d, columns = self.input_dim, self.active_dims[:-1]

        def product(ls, **same):
            inner = self.kernel(d, ls=ls, active_dims=columns, **self.params)
            return inner * SameGroup(d, self.group_dim, **same)

        if not self.ls.ndim:
            return product(self.ls, scale=self.scale)
        count = self._present_count()
        if count is None:
            return None
        # The scales stay outside: what is 0 in all other groups is so whatever the parameters.
        scales = self.scale if self.scale.ndim else [self.scale] * count
        return reduce(add, (scales[g] ** 2 * product(self.ls[g], only=g) for g in range(count)))

    def diag(self, X):
        """Prior variances."""
        X, _ = own_columns(self, X)
        codes = self._valid(X[:, -1].astype("float64"))
        return pt.where(pt.isnan(codes), np.nan, of_codes(self.scale, codes) ** 2)


def of_codes(values, codes) -> TensorVariable:
    """Each row's value, where there is one for each group; NaN where there is no such group."""
    if not values.ndim:
        return values
    known = ~pt.isnan(codes)
    return pt.where(known, values[pt.where(known, codes, 0.0).astype("int64")], np.nan)


def _checked(name, value):
    value = pt.as_tensor_variable(value)
    if value.ndim > 1:
        raise ValueError(
            f"{name} must be a scalar or have an entry for each group, got shape {value.type.shape}"
        )
    if isinstance(value, Constant) and not (np.isfinite(value.data) & (value.data > 0.0)).all():
        raise ValueError(f"{name} must be positive and finite, got {value.data}")
    return value.astype("float64")
