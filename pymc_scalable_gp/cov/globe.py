"""Kernels on the surface of the earth, from latitudes and longitudes in degrees."""

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import Exponential, Matern12, Stationary
from pytensor.graph.basic import Constant

from pymc_scalable_gp.cov.embedded import Embedded, EmbeddedKernel, check_stationary
from pymc_scalable_gp.cov.kernels import Traits
from pymc_scalable_gp.ops.stationary_kernel import stationary_kernel
from pymc_scalable_gp.utils.checks import check_choice
from pymc_scalable_gp.utils.internals import own_columns

# Mean radius of the earth in km.
EARTH_RADIUS = 6371.0088

# Kernels of the arc, with the rate at which they fall in arcs over the lengthscale.
_OF_ARCS = {Matern12: 1.0, Exponential: 0.5}


class Arc(Stationary):
    """``exp(-alpha * angle)`` between points of the unit sphere, from their distance in space."""

    traits = Traits(fused=True)

    def __init__(self, alpha):
        super().__init__(3, ls=1.0)
        self.alpha = alpha

    def full(self, X, Xs=None):
        """Kernel matrix between points X (n, 3) and Xs (m, 3)."""
        return stationary_kernel("Arc", X, Xs, shape=self.alpha)


class GreatCircle(EmbeddedKernel):
    r"""Kernel of the distance on the globe, between latitudes and longitudes in degrees.

    .. math:: k(x, z) = k_0(d(x, z) / \ell), \qquad
              d = 2 R \arcsin \frac{\|u(x) - u(z)\|}{2}

    with u the point of the unit sphere and R = 6371.0088 km. With ``distance="chord"`` d is the
    distance straight through the earth, :math:`R \|u(x) - u(z)\| = 2 R \sin(d_\text{arc} / 2 R)`: .2 % less
    than the arc at 1400 km, 10 % less at 9900 km.

    Parameters
    ----------
    kernel : subclass of pm.gp.cov.Stationary
        Along arcs ``pm.gp.cov.Matern12`` or ``Exponential``; with chords any but periodic ones.
    ls : scalar
        Lengthscale in km; may be random.
    input_dim : int
        Number of columns of X.
    active_dims : sequence of two int, optional
        The columns with latitudes and longitudes, in this order; the first two when left out.
    distance : {"arc", "chord"}
    **params
        Further arguments of `kernel`, such as the alpha of a ``RatQuad``.

    Raises
    ------
    TypeError, ValueError
        For anything but a class of stationary kernels of the distance, or one that is no covariance
        along arcs; for latitudes beyond 90 degrees. In data that are replaced later, and where the kernel
        is called by itself, such latitudes give NaN.

    Notes
    -----
    Most stationary kernels are not positive definite along arcs: of the Matern family those up to
    smoothness 1/2 alone are (Table 1 of [1]_). Chords are distances in space, where all kernels of three
    inputs are valid. Longitudes count modulo 360. Neighbours, inducing points and k-means go by the points
    in space, across the date line and the poles.

    References
    ----------
    .. [1] Gneiting, T. (2013). Strictly and non-strictly positive definite functions on spheres.
       Bernoulli 19(4). https://doi.org/10.3150/12-BEJSP06

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.array([[0.0, 179.5], [0.0, -179.5], [90.0, 12.0]])  # 111 km apart, and the pole
    >>> sgp.cov.GreatCircle(pm.gp.cov.Matern12, ls=1000.0)(X).eval().round(3)
    array([[1.   , 0.895, 0.   ],
           [0.895, 1.   , 0.   ],
           [0.   , 0.   , 1.   ]])
    >>> print(np.exp(-np.deg2rad(1.0) * 6.3710088).round(3))
    0.895
    >>> cov = sgp.cov.GreatCircle(pm.gp.cov.Matern52, ls=1000.0, distance="chord")
    >>> cov(X[:2]).eval().round(3)
    array([[1.  , 0.99],
           [0.99, 1.  ]])
    """

    def __init__(
        self, kernel: type[Stationary], *, ls, input_dim: int = 2, active_dims=None,
        distance: str = "arc", **params,
    ):  # fmt: skip
        if active_dims is None and input_dim >= 2:
            active_dims = [0, 1]
        super().__init__(input_dim, active_dims)
        if len(self.active_dims) != 2:
            raise ValueError(
                "GreatCircle takes two columns, latitude and longitude in degrees: give active_dims with "
                f"two columns, got input_dim={input_dim}, active_dims={active_dims}"
            )
        self.turning_dims = self.active_dims[1:]
        check_choice("distance", distance, ("arc", "chord"))
        why_not = "is a kernel of one input, and no covariance on the globe"
        check_stationary(kernel, params, "Matern12", why_not)
        if distance == "arc" and kernel not in _OF_ARCS:
            raise ValueError(
                f'{kernel.__name__} is not positive definite along great circles: give distance="chord", '
                "the distance straight through the earth, with which any stationary kernel is valid, or "
                f"one of {', '.join(kind.__name__ for kind in _OF_ARCS)}"
            )
        ls = pt.as_tensor_variable(ls)
        if ls.ndim:
            raise ValueError(
                f"ls must be a scalar, the lengthscale in km, got shape {ls.type.shape}: the globe has no "
                "direction in which distances could count more"
            )
        if isinstance(ls, Constant) and not (np.isfinite(ls.data) and ls.data > 0.0):
            raise ValueError(f"ls must be positive, the lengthscale in km, got {ls.data:g}")
        self.ls, self.distance = ls.astype("float64"), distance
        if distance == "arc":
            self.kernel = Arc(_OF_ARCS[kernel] * EARTH_RADIUS / self.ls)
        else:
            self.kernel = kernel(3, ls=self.ls, **params)

    def of_columns(self, columns, origin=None) -> Embedded:
        """The same kernel of points in space."""
        lat = pt.where(pt.abs(columns[:, 0]) <= 90.0, columns[:, 0], np.nan) * (np.pi / 180.0)
        lon = columns[:, 1] * (np.pi / 180.0)
        points = pt.stack([pt.cos(lat) * pt.cos(lon), pt.cos(lat) * pt.sin(lon), pt.sin(lat)], axis=1)
        inputs = points if self.distance == "arc" else EARTH_RADIUS * points
        return Embedded(self.kernel, inputs, (EARTH_RADIUS / self.ls) * points, np.rad2deg(1.0) * points)

    def diag(self, X):
        """Prior variances."""
        X, _ = own_columns(self, X)
        return self.kernel.diag(self.of_columns(X).inputs) + pt.where(pt.abs(X[:, 0]) <= 90.0, 0.0, np.nan)

    def check_rows(self, X: np.ndarray, name: str) -> None:
        """Raise ValueError for inputs (n, d) with latitudes that there are not."""
        column = self.active_dims[0]
        bad = np.flatnonzero(np.abs(X[:, column]) > 90.0)
        if bad.size:
            raise ValueError(
                f"column {column} of {name} holds latitudes in degrees, between -90 and 90, but row "
                f"{bad[0]} has {X[bad[0], column]:g} ({bad.size} rows are beyond): give latitude and "
                "longitude in this order, or active_dims=[latitude column, longitude column]"
            )
