"""Predictions from a file that `gp.export` wrote, by NumPy, and SciPy for neighbours."""

import json
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add, mul

import numpy as np

from pymc_scalable_gp.utils.archive import read_archive
from pymc_scalable_gp.utils.stationary import kernel_of_squares, root_of_squares

FORMAT = 1
MARK = "predictor of pymc_scalable_gp"
_NUMBERS = 2**23  # of an array of some new rows, at most


def kernel_values(node: dict, values: list, x, z):
    """Kernel between inputs that broadcast: x (..., d) and z (..., d) give (...).

    `node` names a kernel, its columns and the places of its parameters in `values`; sums and products
    have nodes as parts.
    """
    kind, given = node["kind"], {k: values[i] for k, i in node.get("values", {}).items()}
    parts = [kernel_values(part, values, x, z) for part in node.get("parts", ())]
    if kind in ("Add", "Prod"):
        return joined(kind, parts)
    if kind == "Exponentiated":
        return parts[0] ** given["power"]
    if kind == "Constant":
        return given["c"]
    pairs = [(x[..., a], z[..., a]) for a in node["dims"]]
    if kind in ("Linear", "Polynomial"):
        centers = np.broadcast_to(given["c"], len(pairs))
        total = sum((a - c) * (b - c) for (a, b), c in zip(pairs, centers, strict=True))
        return total if kind == "Linear" else (total + given["offset"]) ** given["d"]
    rates = np.broadcast_to(1.0 / given["ls"], len(pairs))
    changes = [a - b for a, b in pairs]
    if "period" in given:
        periods = np.broadcast_to(given["period"], len(pairs))
        changes = [np.sin(np.pi * c / p) for c, p in zip(changes, periods, strict=True)]
    squares = sum((c * rate) ** 2 for c, rate in zip(changes, rates, strict=True))
    if kind == "Cosine":
        return np.cos(2.0 * np.pi * root_of_squares(squares, np))
    return kernel_of_squares(kind, squares, given.get("alpha"), np)


def mean_values(node: dict, values: list, X):
    """Mean function at X (n, d), as `kernel_values`."""
    kind, given = node["kind"], {k: values[i] for k, i in node.get("values", {}).items()}
    if kind == "Constant":
        return given["c"]
    if kind == "Linear":
        return X @ (given["coeffs"] * np.ones(X.shape[1])) + given["intercept"]
    return joined(kind, [mean_values(part, values, X) for part in node["parts"]])


def joined(kind: str, parts: list):
    """Sum, 0 of nothing, or product of some parts."""
    return reduce(add if kind == "Add" else mul, parts or [0.0])


def _numbers(Xnew) -> np.ndarray:
    """Inputs as floats; TypeError or ValueError for text, dates, missing or masked values."""
    if np.ma.is_masked(Xnew):
        raise ValueError("Xnew has masked values: drop those rows, or impute them")
    X = np.asarray(Xnew)
    try:
        if X.dtype.kind in "fiubO":
            return X.astype(float)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"Xnew must be numeric, without missing values, got dtype {X.dtype}")


@dataclass(frozen=True, eq=False)
class ExportedPredictor:
    r"""Predictions of a fitted GP without its model: see :func:`load_predictor`.

    At draw s of the posterior, with ``phi(x) = W_s k_s(Z, x)``,

    .. math:: m_s(x) = \mu_s(x) + \phi^\top b_s, \qquad
        v_s(x) = k_s(x, x) - \|\phi\|^2 + \|R_s \phi\|^2

    With neighbours N of x among the training rows, ``a = (K - Phi Phi' + D)_NN^-1 c`` and
    ``c = k(X_N, x) - Phi_N phi``, ``phi - Phi_N' a`` takes the place of phi in the terms with b and R,
    ``a' e_N`` is added to the mean, and ``a' c`` taken off the variance.

    Attributes
    ----------
    settings : dict
        The names: class, inputs and their columns, neighbours, kernel and mean, and the number of draws.
    arrays : dict
        The numbers, by name.
    """

    settings: dict
    arrays: dict[str, np.ndarray]

    def __repr__(self):
        told = self.settings
        inputs = f"{told['inputs']} input{'s'[: told['inputs'] > 1]}"
        return f"<ExportedPredictor: {told['class']}, {inputs}, {told['draws']} draws>"

    def predict(self, Xnew, pred_noise: bool = False) -> dict[str, np.ndarray]:
        """Mean and sd at new inputs, averaged over the draws in the file.

        Parameters
        ----------
        Xnew : array, shape (n*, d)
            Any number of rows: they are taken in blocks.
        pred_noise : bool
            Add the observation noise.

        Returns
        -------
        dict
            ``mean`` and ``sd`` (n*,), those of ``gp.predict_posterior`` with the same draws; where training
            rows lie equally far, as on a lattice, neighbours may be others of them.

        Raises
        ------
        TypeError, ValueError
            For inputs that are not a finite matrix with as many columns as the training inputs, such as
            masked ones, or a table with theirs in another order, or `pred_noise` where the likelihood has
            no scalar sigma.

        Notes
        -----
        O(draws n* m^2) for m inducing points, or training rows of an exact GP; k neighbours add
        O(draws n* k^2 (k + m)).
        """
        X = self._checked(Xnew)
        noise = self.arrays.get("noise")
        if pred_noise and noise is None:
            raise ValueError(
                "pred_noise=True needs Gaussian noise with a scalar sigma, which this model has not: "
                "add the noise of the new rows to the result"
            )
        found = {"mean": np.empty(len(X)), "sd": np.empty(len(X))}
        for start in range(0, len(X), self._block_rows):
            rows = slice(start, start + self._block_rows)
            block, near = X[rows], self._nearest(X[rows])
            moments = [self._moments(s, block, near) for s in range(self.settings["draws"])]
            mean, var = (np.stack(part) for part in zip(*moments, strict=True))
            own = noise.mean() if pred_noise else 0.0
            found["mean"][rows] = mean.mean(axis=0)
            found["sd"][rows] = np.sqrt(mean.var(axis=0) + var.mean(axis=0) + own)
        return found

    def _checked(self, Xnew) -> np.ndarray:
        X, wanted = _numbers(Xnew), self.settings["inputs"]
        if X.ndim != 2 or X.shape[1] != wanted:
            raise ValueError(f"Xnew must have shape (n, {wanted}), got {X.shape}")
        came, names = [str(c) for c in getattr(Xnew, "columns", ())], self.settings.get("columns", [])
        if came != names and sorted(came) == sorted(names):
            raise ValueError(
                "Xnew has columns in another order than X had, and columns go by their place: give them "
                f"as {names}"
            )
        if not np.isfinite(X).all():
            raise ValueError(f"Xnew has {(~np.isfinite(X)).sum()} values that are NaN or infinite")
        return X

    @property
    def _block_rows(self) -> int:
        """New rows at a time: what is stored for each of them stays small."""
        points, k = len(self.arrays["points"]), self.settings["neighbors"]
        return int(np.clip(_NUMBERS // (k * (k + points) + points + 1), 1, 2048))

    @cached_property
    def _tree(self):
        """Training rows where the kernel falls with the distance."""
        from scipy.spatial import KDTree  # a third of a second, for neighbours alone

        return KDTree(self._placed(self.arrays["rows"]))

    def _placed(self, X):
        return (X - self.arrays["origin"]) @ self.arrays["axes"]

    def _nearest(self, X):
        """Training rows (n*, k) next to new ones; None without neighbours."""
        k = self.settings["neighbors"]
        return self._tree.query(self._placed(X), k=range(1, k + 1))[1] if k else None

    def _values(self, s: int) -> list:
        """Parameters of kernel and mean at a draw."""
        count = self.settings["parameters"]
        return [self.arrays[f"parameter_{i}"][s] for i in range(count)]

    def _matrix(self, values, X, Z):
        """Kernel (..., n, m) between rows X (..., n, d) and Z (..., m, d)."""
        x, z = X[..., :, None, :], Z[..., None, :, :]
        found = kernel_values(self.settings["kernel"], values, x, z)
        return np.broadcast_to(found, np.broadcast_shapes(x.shape, z.shape)[:-1])

    def _features(self, s, values, X):
        """Features (n, m) of rows X (n, d)."""
        return self._matrix(values, X, self.arrays["points"]) @ self.arrays["weights"][s].T

    def _moments(self, s, X, near):
        """Mean and variance (n*,) at one draw."""
        values, coef = self._values(s), self.arrays["coef"][s]
        mean = mean_values(self.settings["mean"], values, X)
        phi = self._features(s, values, X)
        var = kernel_values(self.settings["kernel"], values, X, X) - (phi**2).sum(axis=1)
        if near is not None:
            phi, added, taken = self._given(s, values, X, phi, near)
            mean, var = mean + added, var - taken
        var = np.maximum(var, 0.0)
        if "root" in self.arrays:
            var = var + ((phi @ self.arrays["root"][s].T) ** 2).sum(axis=1)
        return mean + phi @ coef, var

    def _given(self, s, values, X, phi, near):
        """Features given the neighbours, what these add to the mean, and take off the variance."""
        around, places = np.unique(near, return_inverse=True)
        places = places.reshape(near.shape)
        rows = self.arrays["rows"][near]
        known = self._features(s, values, self.arrays["rows"][around])[places]
        own = self.arrays["row_noise"][s]
        K = self._matrix(values, rows, rows) - known @ known.transpose(0, 2, 1)
        K[:, *np.diag_indices(near.shape[1])] += own[near] if own.ndim else own
        cross = self._matrix(values, rows, X[:, None])[..., 0]
        cross = cross - (known @ phi[:, :, None])[..., 0]
        a = np.linalg.solve(K, cross[..., None])
        added = (a[..., 0] * self.arrays["residual"][s][near]).sum(axis=1)
        taken = (a[..., 0] * cross).sum(axis=1)
        return phi - (known.transpose(0, 2, 1) @ a)[..., 0], added, taken


def load_predictor(path) -> ExportedPredictor:
    """Read what ``gp.export`` wrote.

    Parameters
    ----------
    path : path or str
        The file.

    Returns
    -------
    ExportedPredictor
        Its ``predict(Xnew)`` gives the mean and sd of ``gp.predict_posterior``. Neither PyMC nor
        PyTensor is imported, nothing is compiled, and nothing in the file can run: it holds numbers
        and names.

    Raises
    ------
    FileNotFoundError
    ValueError
        For a file that is none of these, or of a version of the package with another layout.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import pymc as pm
    >>> import xarray as xr
    >>> import pymc_scalable_gp as sgp
    >>> X = np.linspace(0.0, 1.0, 20)[:, None]
    >>> with pm.Model() as model:
    ...     ell = pm.InverseGamma("ell", 3, 3)
    ...     gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(1, ls=ell))
    ...     _ = gp.marginal_likelihood("y", X=X, y=np.sin(6.0 * X[:, 0]), sigma=0.1)
    >>> idata = pm.sample(model=model)  # doctest: +SKIP
    >>> idata = xr.Dataset({"ell": (("chain", "draw"), [[0.4, 0.5]])})
    >>> path = gp.export(idata, tempfile.mkdtemp() + "/gp.npz", progressbar=False)

    In another process:

    >>> sgp.load_predictor(path).predict([[0.25], [0.5]])["mean"].round(2)
    array([0.99, 0.14])
    """
    foreign = f"{path} is no file of gp.export: write one by gp.export(idata, path)"
    file = read_archive(path, {"mark", "format"}, FORMAT, foreign, "export the predictor again")
    if str(file["mark"]) != MARK:
        raise ValueError(foreign)
    numbers = set(file) - {"mark", "format", "package", "settings"}
    return ExportedPredictor(json.loads(str(file["settings"])), {name: file[name] for name in numbers})
