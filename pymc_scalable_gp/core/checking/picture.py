"""The picture of a check: its differences, shifts and shares, with the thresholds of the verdict."""

import numpy as np
import xarray as xr
from arviz_base import rcParams
from arviz_plots import PlotCollection, visuals

from pymc_scalable_gp.core.checking.verdict import LIMITS, Check

# Title of each panel, and the values between which all is well.
_PANELS = {
    "difference": ("exact - approximate log density", ()),
    "difference_all": ("more neighbors - this log density", ()),
    "mean_shift": ("shift of predictive mean (sds)", (LIMITS["mean_shift"],)),
    "sd_ratio": ("ratio of predictive sds", tuple(np.exp([-LIMITS["sd_ratio"], LIMITS["sd_ratio"]]))),
    "missing": ("prior variance that features do not explain", (LIMITS["missing"],)),
    "moved": ("shift towards exact posterior (sds)", (-LIMITS["moved"], LIMITS["moved"])),
    "moved_laplace": ("shift without Laplace's error (sds)", (-LIMITS["moved"], LIMITS["moved"])),
    "moved_all": ("shift towards more neighbors (sds)", (-LIMITS["moved"], LIMITS["moved"])),
}  # fmt: skip


def plot_check(check: Check, *, backend: str | None = None, figure_kwargs=None) -> PlotCollection:
    """Draw what ``gp.check`` found: one panel per quantity, dashed lines at the thresholds of its verdict.

    Differences of log densities, over draws, and shifts, ratios and shares, over rows, are shown as
    empirical distribution functions; shifts of hyperparameters as points.

    Parameters
    ----------
    check : xarray.Dataset
        What :meth:`check` of a GP returned.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        Of ArviZ-plots; its default when left out.
    figure_kwargs : dict, optional
        Passed to the backend, such as ``figsize``.

    Returns
    -------
    arviz_plots.PlotCollection
        Shown in a notebook; ``.savefig(path)`` writes it.

    Raises
    ------
    TypeError
        For anything else than the result of a check.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.linspace(0.0, 1.0, 30)[:, None]
    >>> with pm.Model():
    ...     ell = pm.InverseGamma("ell", 3, 3)
    ...     gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=ell), inducing=5)
    ...     _ = gp.marginal_likelihood("y", X=X, y=np.sin(6.0 * X[:, 0]), sigma=0.1)
    ...     found = gp.check({"ell": 0.3}, progressbar=False)
    >>> type(sgp.plot_check(found, backend="none")).__name__
    'PlotCollection'
    >>> sgp.plot_check(found).savefig("check.png")  # doctest: +SKIP
    """
    if not isinstance(check, Check):
        raise TypeError(f"plot_check draws what gp.check returns, got {type(check).__name__}")
    shown = _panels(check)
    if not shown:
        raise ValueError("nothing to draw: neighbours of a latent function are compared with nothing")
    backend = rcParams["plot.backend"] if backend is None else backend
    layout = {"layout": "constrained"} if backend == "matplotlib" else {}
    layout["figsize"] = (10.5, 3.0 * -(-len(shown) // 3))
    figure_kwargs = layout | (figure_kwargs or {})
    found = PlotCollection.wrap(
        shown, cols=["__variable__"], col_wrap=3, backend=backend, figure_kwargs=figure_kwargs
    )
    points = [name for name in shown if name.startswith("moved")]
    curves = [name for name in shown if name not in points]
    found.map(_distribution, "distribution", data=shown[curves], color="C0")
    if points:
        found.map(_points, "points", data=shown[points], color="C0")
    for k in range(2):
        lines = {name: _PANELS[name][1][k] for name in shown if len(_PANELS[name][1]) > k}
        if lines:
            found.map(visuals.vline, f"threshold_{k}", data=xr.Dataset(lines), color="grey", linestyle="--")
    for name in shown:
        found.map(visuals.labelled_x, "label", data=shown[[name]], text=_PANELS[name][0])
    return found


def _panels(check) -> xr.Dataset:
    """Values to draw, by panel."""
    found = {}
    if "logp_exact" in check:
        found["difference"] = check.logp_exact - check.logp_approx
    if "logp_all" in check:
        found["difference_all"] = check.logp_neighbors - check.logp_all
    found |= {name: check[name] for name in _PANELS if name in check}
    if check.attrs["holds_residual"]:  # neighbours hold the residual variance
        del found["missing"]
    return xr.Dataset(found)


def _distribution(values, target, **kwargs):
    """Empirical distribution function."""
    x = np.sort(np.ravel(values))
    y = np.arange(1, len(x) + 1) / len(x)
    backend = visuals.backend_from_object(target)
    return backend.line(np.repeat(x, 2), np.insert(np.repeat(y, 2)[:-1], 0, 0.0), target, **kwargs)


def _points(values, target, **kwargs):
    """Draw one row per hyperparameter."""
    backend = visuals.backend_from_object(target)
    rows = np.arange(values.size)
    backend.yticks(rows, [str(name) for name in values.hyperparameter.values], target)
    return backend.scatter(values.values, rows, target, **kwargs)
