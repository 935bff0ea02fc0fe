"""The words of a check: what was compared, what is wrong, and what to do about it."""

import textwrap

import numpy as np
import xarray as xr
from arviz_base import rcParams
from arviz_plots import PlotCollection, visuals

from pymc_scalable_gp.core.checking.comparison import MOST_EXACT_ROWS
from pymc_scalable_gp.core.data.draws import FEWEST
from pymc_scalable_gp.core.vecchia.likelihood import MOVED
from pymc_scalable_gp.importance.density import MOST_PARAMETERS

# Thresholds beyond which a figure counts as a fault.
LIMITS = {
    "k_hat": 0.7,  # tail of the importance weights (Vehtari et al. 2024)
    "moved": 0.5,  # move of a hyperparameter's mean, in posterior sds
    "mean_shift": 0.25,  # shift of the predictive mean in predictive sds, 95% quantile
    "sd_ratio": 0.1,  # log ratio of predictive sds
    "missing": 0.05,  # share of the prior variance that features miss
    "residual": 0.01,  # residual of conjugate gradients
    "logdet": 1.0,  # error of a log determinant
    "neighbors_moved": MOVED,  # share of neighbours that others would replace
    "even": 0.5,  # sd of log weights below which the weights are nearly equal
    "frozen": 1.0,  # sd of the difference between frozen and recomputed features' log densities
    "reference": 1.0,  # distance from a frozen basis' reference, in posterior sds
}
# Rows up to which a gradient of the exact GP takes less time than one with neighbours (bench_structure.py).
FASTER_EXACT = 600


class Check(xr.Dataset):
    """Result of ``gp.check``: the verdict, then the figures that it goes by."""

    __slots__ = ()

    def __str__(self):
        return "\n".join(textwrap.fill(line, 88) for line in self.attrs["verdict"].splitlines())

    def __repr__(self):
        return f"{self}\n\n{super().__repr__()}"


def verdict(gp, training, check) -> str:
    """Good or poor, why and what to do; in a second paragraph what was compared, and the figures."""
    compared = _subset(check), _frozen(check), _all(check), _laplace(check)
    text, bad = "", []
    for said, faults in (*compared, _missing(check, training), _solver(check)):
        text, bad = text + said, bad + faults
    rows = training.data.size if training is not None and training.gaussian is not None else np.inf
    if gp.approx == "VIF" and rows <= FASTER_EXACT:
        text += f"Up to about {FASTER_EXACT} rows sgp.ExactMarginal is exact and costs less. "
    return f"{_judged(gp, training, check, bad)}\n{text.rstrip()}".rstrip()


def _judged(gp, training, check, bad) -> str:
    """The verdict's first paragraph: good or poor, why, and what to do."""
    few = check.attrs["draws"] < FEWEST and check.sizes.get("sample")
    if bad:
        own = [each for each in bad if not each.startswith("Laplace")]
        advice = remedy(gp, training, check) if own else ""
        advice = f"{advice}{_correction(training, check, bad)}".strip()
        return f"Poor: {'; '.join(bad)}. {advice}"
    if few and check.attrs["draws"] == 1:
        return "Good at this point; the posterior's draws tell more."
    if few:
        return f"Good at these draws; {FEWEST} tell how the posterior differs."
    if "logp_all" in check or getattr(training, "is_exact", False):
        return "Good."
    if "logp_exact" in check:
        return "Good on that many rows; more of them tell more."
    return "Good, as far as this goes: no exact likelihood was compared."


def _subset(check):
    """Compare with the exact Gaussian process of some rows."""
    if "logp_exact" not in check:
        return "", []
    a = check.attrs
    text = f"On {a['rows']} rows the exact log density is {_gap(a, '', 'the approximate one')}. "
    # A comparison with NaN is false, and what is not finite must not be called good.
    bad = [] if np.isfinite(a["lost"]) else ["log densities are not finite"]
    words, near = _weights(check, "")
    text += words and f"Weighted towards the exact posterior, {words}. "
    if not near:
        bad.append("the posterior of the hyperparameters is another one")
    shift, ratio = float(np.quantile(check.mean_shift.values, 0.95)), check.sd_ratio.values
    wide = float(ratio[np.abs(np.log(ratio)).argmax()])
    text += (
        f"Predictive means shift by up to {shift:.2f} predictive sds (95% of rows), sds by a factor of "
        f"{wide:.2f} at most. "
    )
    if not (shift <= LIMITS["mean_shift"] and abs(np.log(wide)) <= LIMITS["sd_ratio"]):
        bad.append("predictions differ")
    return text, bad


def _frozen(check):
    """Compare a frozen basis with features that are computed anew at each draw."""
    if "excess" not in check:
        return "", []
    text, bad = "", []
    if "from_reference" in check:
        away = _away(check)
        name = str(check.hyperparameter.values[away.argmax()])
        text += f"{name} has its mean {away.max():.1f} posterior sds from the frozen basis' "
        text += "reference, the others less. "
    a, excess = check.attrs, float(check.excess.max())
    text += f"Frozen features exceed the kernel's variance by up to {excess:.1%}. "
    if "lost_recomputed" in a:
        text += f"Features computed anew have a log density {_gap(a, '_recomputed', 'this one')}. "
    if _is_far(check):
        bad.append("the basis is frozen too far from these draws")
    return text, bad


def _away(check) -> np.ndarray:
    """Distance of each hyperparameter from a frozen basis' reference in posterior sds."""
    found = check.get("from_reference")
    return np.zeros(0) if found is None else np.nan_to_num(np.abs(found.values))


def _is_far(check) -> bool:
    """Whether a frozen basis' density is another one than that of features computed anew."""
    if "excess" not in check:
        return False
    lost, excess = check.attrs.get("lost_recomputed", 0.0), float(check.excess.max())
    return not (lost <= LIMITS["frozen"] and excess <= LIMITS["missing"])


def _all(check):
    """Compare with more neighbours, for all rows or many of them."""
    a = check.attrs
    if "logp_all" not in check:
        if "n_all" not in a:
            return "", []
        return (
            f"{a['n_all']} rows are too many to be compared at once, and this likelihood is none of some "
            "of them: most_rows=None compares them all. "
        ), []
    rows = f"all {a['n']} rows" if a["n"] == a["n_all"] else f"{a['n']} of {a['n_all']} rows"
    words, near = _weights(check, "_all")
    text = (
        f"On {rows} the log density with inducing points and {a['neighbors']} neighbors is "
        f"{_gap(a, '_all', 'this one')}{words and f'; weighted towards it, {words}'}. "
    )
    if near and np.isfinite(a["lost_all"]):
        return text, []
    where = "all rows" if a["n"] == a["n_all"] else rows
    return text, [f"on {where} the posterior is another one"]


def _laplace(check):
    """Report what Laplace's approximation leaves out, from draws of the function."""
    a, bad = check.attrs, []
    if "modes_missing" not in a:
        return "", []
    text = ""
    if a["modes_missing"]:
        text = f"At {a['modes_missing']} of {a['draws']} draws no mode of the function was found. "
        bad.append("modes of the function are missing")
    if "gap_laplace" in a:
        gap = _gap(a, "_laplace", "Laplace's approximation")
        words, near = _weights(check, "_laplace")
        text += (
            f"Draws of the function put the log density {gap} (Pareto k {a['k_hat_functions']:.2f})"
        )
        text += f"{words and f'; weighted towards it, {words}'}. "
        if not (near and a["k_hat_functions"] <= LIMITS["k_hat"]):
            bad.append("Laplace's approximation is poor")
    return text, bad


def _missing(check, training):
    """Report the prior variance that features miss, unless neighbours account for it."""
    if check.attrs["holds_residual"]:
        return "", []
    missing = check.attrs["missing_mean"]
    worst = int(check.missing.values.argmax())
    text = f"Features miss {missing:.1%} of the prior variance, {check.missing.values[worst]:.1%} at row "
    text += f"{int(check.obs[worst])}. "
    if not missing <= LIMITS["missing"]:
        text_bad = "what features miss is left out of the function"
        if training is not None and training.sigma is not None:
            text_bad = "sigma may be off by what the features miss"
        return text, [text_bad]
    return text, []


def _solver(check):
    """Report errors of iterative solvers, and neighbours chosen at other hyperparameters."""
    a, text, bad = check.attrs, "", []
    # Where all rows' density was compared, what the iterations leave is in that difference.
    compared = "logp_all" in check
    if "residual" in a:
        text += f"Conjugate gradients leave {a['residual']:.1e} of the targets. "
        if not (compared or a["residual"] <= LIMITS["residual"]):
            bad.append("conjugate gradients have not converged")
    if "logdet_se" in a:
        text += f"The log determinant is known to {a['logdet_se']:.2g} (se) and {a['logdet_excess']:.2g}"
        text += " (bound of its excess). "
        if not (compared or 0.5 * max(a["logdet_se"], a["logdet_excess"]) <= LIMITS["logdet"]):
            bad.append("the log determinant is uncertain")
    if "neighbors_moved" in a:
        text += f"{a['neighbors_moved']:.0%} of the neighbors would be others at these draws. "
        if not a["neighbors_moved"] <= LIMITS["neighbors_moved"]:
            bad.append("neighbors were chosen at other lengthscales: call gp.rebuild(point)")
    return text, bad


def remedy(gp, training, check) -> str:
    """Advice on what to change."""
    if _is_far(check) or _away(check).max(initial=0.0) > LIMITS["reference"]:
        return "Make the basis anew at the posterior mean, gp.recentre(X, idata), and the model with it."
    if check.attrs["holds_residual"]:
        return f"Raise {gp.knobs}, or call gp.rebuild(point) at a point of the posterior."
    text = f"Raise {gp.knobs}"
    needed = check.attrs.get("rank_needed", np.nan)
    if np.isinf(needed):
        text += f" (more than {check.attrs['rows'] // 2} features are needed)"
    elif needed > check.attrs["rank"]:
        text += f" to {int(needed)} features or more"
    latent = training is None or training.sigma is None
    if "VIF" in gp.approximations and not latent and gp.frozen is None:
        return f'{text}, or take approx="VIF", which puts back what they miss.'
    other = "VecchiaLatent" if latent else "VecchiaMarginal"
    return f"{text}." if type(gp).__name__ == other else f"{text}, or take {other}."


def _correction(training, check, bad) -> str:
    """Advice to weigh the draws towards the better posterior, where that is another one."""
    if bad == ["Laplace's approximation is poor"]:
        return ' gp.correct(idata, target="likelihood") takes its error away.'
    another = any("posterior" in each for each in bad)
    if not another or check.sizes.get("hyperparameter", 0) > MOST_PARAMETERS:
        return ""
    if training.data.size <= MOST_EXACT_ROWS:
        return " Or keep it: gp.correct(idata) makes draws of the exact posterior from these."
    neighbors = check.attrs.get("neighbors", 60)
    return (
        f" Or keep it: gp.correct(idata, neighbors={neighbors}) makes draws of a closer posterior."
    )


def _gap(a: dict, suffix: str, other: str) -> str:
    """Describe the difference between a better log density and the `other`, from a check's attributes."""
    gap, lost, draws = a[f"gap{suffix}"], a[f"lost{suffix}"], a["draws"]
    text = f"{abs(gap):.3g} nats {'above' if gap >= 0.0 else 'below'} {other}"
    if draws > 1:
        text += f", and the difference varies by {lost:.2g} (sd) over {draws} draws"
    return text


def _weights(check, suffix: str) -> tuple[str, bool]:
    """Describe the hyperparameter that weights move most, and tell whether it moves little.

    No words, and nothing that moves, where there are too few draws for weights.
    """
    moved = check.get(f"moved{suffix}")
    if moved is None:
        return "", True
    k_hat, lost = check.attrs[f"k_hat{suffix}"], check.attrs[f"lost{suffix}"]
    worst = int(np.abs(moved.values).argmax())
    name, by = str(moved.hyperparameter.values[worst]), float(moved[worst])
    # Weights without a tail have no k: nearly equal ones, or one draw with all the weight.
    light = k_hat <= LIMITS["k_hat"] or (np.isnan(k_hat) and lost <= LIMITS["even"])
    near = bool(light and abs(by) <= LIMITS["moved"])
    tail = f" (Pareto k {k_hat:.2f})" if np.isfinite(k_hat) else ""
    return f"{name} moves by {by:+.2f} posterior sds{tail}", near


# Title of each panel, and the values between which all is well.
_PANELS = {
    "difference": ("exact - approximate log density", ()),
    "difference_all": ("more neighbors - this log density", ()),
    "mean_shift": ("shift of predictive mean (sds)", (LIMITS["mean_shift"],)),
    "sd_ratio": ("ratio of predictive sds", tuple(np.exp([-LIMITS["sd_ratio"], LIMITS["sd_ratio"]]))),
    "missing": ("prior variance that features miss", (LIMITS["missing"],)),
    "moved": ("move towards exact posterior (sds)", (-LIMITS["moved"], LIMITS["moved"])),
    "moved_laplace": ("move without Laplace's error (sds)", (-LIMITS["moved"], LIMITS["moved"])),
    "moved_all": ("move towards more neighbors (sds)", (-LIMITS["moved"], LIMITS["moved"])),
}  # fmt: skip


def plot_check(check: Check, *, backend: str | None = None, figure_kwargs=None) -> PlotCollection:
    """Draw what ``gp.check`` found: one panel per quantity, dashed lines at the thresholds of its verdict.

    Differences of log densities, over draws, and shifts, ratios and shares, over rows, are shown as
    empirical distribution functions; moves of hyperparameters as points.

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
            found.map(
                visuals.vline,
                f"threshold_{k}",
                data=xr.Dataset(lines),
                color="grey",
                linestyle="--",
            )
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
    if check.attrs["holds_residual"]:  # nothing is missed for good
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
