"""The words of a check: what was compared, what is wrong, and what to do about it."""

import textwrap

import numpy as np
import xarray as xr

from pymc_scalable_gp.core.checking.comparison import MOST_EXACT_ROWS
from pymc_scalable_gp.core.data.draws import FEWEST
from pymc_scalable_gp.importance.density import MOST_PARAMETERS

# Thresholds beyond which a figure counts as a fault.
LIMITS = {
    "k_hat": 0.7,  # tail of the importance weights (Vehtari et al. 2024)
    "moved": 0.5,  # shift of a hyperparameter's mean, in posterior sds
    "mean_shift": 0.25,  # shift of the predictive mean in predictive sds, 95% quantile
    "sd_ratio": 0.1,  # log ratio of predictive sds
    "missing": 0.05,  # residual variance, which the features do not explain, as a share of the prior's
    "residual": 0.01,  # residual of conjugate gradients
    "logdet": 1.0,  # error of a log determinant
    "neighbors_moved": 0.3,  # share of neighbours that others would replace
    "even": 0.5,  # sd of log weights below which the weights are nearly equal
    "frozen": 1.0,  # sd of the difference between frozen and recomputed features' log densities
    "kernel_share": 0.05,  # prior variance as a share of that with noise, below which y is all but noise
    "reference": 1.0,  # distance from a frozen basis' reference, in posterior sds
}
# Rows up to which a gradient of the exact GP takes less time than one with neighbours (bench_structure.py).
FASTER_EXACT = 600
NATS = "nats (natural logarithms)"


class Check(xr.Dataset):
    """Result of ``gp.check``, shown as its verdict; `details` has all figures."""

    __slots__ = ()

    @property
    def details(self) -> str:
        """What was compared, with all figures."""
        return textwrap.fill(self.attrs["details"], 88)

    def __str__(self):
        return "\n".join(textwrap.fill(line, 88) for line in self.attrs["verdict"].splitlines())

    def __repr__(self):
        return f"{self}\n\n{super().__repr__()}"


def verdict(gp, training, check) -> tuple[str, str]:
    """What is printed, the verdict and a second paragraph, and what was compared, with all figures.

    Below "good" the second paragraph has the largest shifts; below "poor", with its remedy, all figures.
    """
    rows = training.data.size if training is not None and training.gaussian is not None else np.inf
    compared = _subset(check), _frozen(check), _all(check), _laplace(check)
    text, bad = "", []
    for said, faults in (*compared, _missing(gp, check), _solver(check, rows)):
        text, bad = text + said, bad + faults
    poor = not all(each.startswith("Laplace") for each in bad)  # as the exact one may be by that alone
    if rows <= FASTER_EXACT and (gp.approx == "VIF" or (poor and not training.gaussian.is_exact)):
        text += f"Up to about {FASTER_EXACT} rows sgp.ExactMarginal is exact and costs less. "
    details = text.rstrip().replace(" nats", f" {NATS}", 1)
    shown = f"{details if bad else _shifts(check) or details} {_noise_alone(check)}"
    return f"{_judged(gp, training, check, bad)}\n{shown.strip()}".rstrip(), details


def _noise_alone(check) -> str:
    """Tell where noise explains y, which may be a mode beside a better one."""
    share = check.attrs.get("kernel_share", 1.0)
    if not share < LIMITS["kernel_share"]:
        return ""
    return (
        f"The function has {share:.1%} of the variance at these draws, and noise the rest. Where it should "
        "have more, a mode of shorter lengthscales and less noise may be missed: start there, with start= "
        "or initvals=."
    )


def _shifts(check) -> str:
    """The largest shift of predictions and of hyperparameters (or densities), and from what."""
    a, said = check.attrs, {}
    better = {
        "": f"the exact GP on {a['rows']} rows", "_laplace": "draws of the function",
        "_all": f"{a.get('neighbors')} neighbors on {a.get('n')} rows",
    }  # fmt: skip
    found = [each for each in better if f"gap{each}" in a]
    moved = {s: float(np.abs(check[f"moved{s}"]).max()) for s in found if f"moved{s}" in check}
    if "mean_shift" in check:
        first = "" if "" in found else "_all"
        said[first] = f"predictive means shift by up to {_mean_shift(check):.2f} sds"
    if moved:
        most = max(moved, key=moved.get)
        words = f"hyperparameters shift by up to {moved[most]:.2f} sds{_tail(a[f'k_hat{most}'])}"
    elif found:
        most = max(found, key=lambda each: abs(a[f"gap{each}"]))
        words = f"log densities differ by {abs(a[f'gap{most}']):.2g} {NATS}"
    else:
        return ""
    said[most] = f"{said[most]}, {words}" if most in said else words
    return f"Compared {'; '.join(f'with {better[s]}, {each}' for s, each in said.items())}."


def _judged(gp, training, check, bad) -> str:
    """The verdict's first paragraph: good or poor, why, and what to do."""
    few = check.attrs["draws"] < FEWEST and check.sizes.get("sample")
    if bad:
        own = [each for each in bad if not each.startswith("Laplace")]
        advice = remedy(gp, training, check) if own else ""
        advice = f"{advice}{_correction(gp, check, bad)}".strip()
        return f"Poor: {'; '.join(bad)}. {advice}"
    if few and check.attrs["draws"] == 1:
        return "Good at this point; the posterior's draws tell more."
    if few:
        lost = max(check.attrs.get(f"lost{each}", 0.0) for each in ("", "_all", "_laplace"))
        if lost <= LIMITS["even"]:
            return f"Good at these draws; {FEWEST} tell how the posterior differs."
        varies = f"differences of log densities vary by {lost:.2g} (sd) over these draws"
        return f"Unclear: {varies}, and {FEWEST} tell how far that takes the posterior."
    every = "logp_exact" in check and check.attrs["rows"] >= training.data.size
    if every or "logp_all" in check or getattr(training, "is_exact", False):
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
    text += words and f"With weights towards the exact posterior, {words}. "
    if not near:
        bad.append("the posterior of the hyperparameters is another one")
    predicted, differ = _predictions(check)
    return text + predicted, bad + differ


def _predictions(check):
    """Compare predictions with those of the better likelihood."""
    shift, ratio = _mean_shift(check), check.sd_ratio.values
    wide = float(ratio[np.abs(np.log(ratio)).argmax()])
    text = (
        f"Predictive means shift by up to {shift:.2f} predictive sds (95% of rows), sds by a factor of "
        f"{wide:.2f} at most. "
    )
    if shift <= LIMITS["mean_shift"] and abs(np.log(wide)) <= LIMITS["sd_ratio"]:
        return text, []
    return text, ["predictions differ"]


def _mean_shift(check) -> float:
    """Shift of predictive means, in predictive sds, which 95% of the rows do not exceed."""
    return float(np.quantile(check.mean_shift.values, 0.95))


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
    text += f"Frozen features exceed the kernel's variance by up to {excess:z.1%}. "
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
        f"{_gap(a, '_all', 'this one')}{words and f'; with weights towards it, {words}'}. "
    )
    own = "mean_shift" in check and "logp_exact" not in check
    predicted, bad = _predictions(check) if own else ("", [])
    if not (near and np.isfinite(a["lost_all"])):
        where = "all rows" if a["n"] == a["n_all"] else rows
        bad = [f"on {where} the posterior is another one", *bad]
    return text + predicted, bad


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
        tail = _tail(a["k_hat_functions"], "Pareto k-hat")
        text += f"Draws of the function put the log density {gap}{tail}"
        text += f"{words and f'; with weights towards it, {words}'}. "
        if not (near and a["k_hat_functions"] <= LIMITS["k_hat"]):
            bad.append("Laplace's approximation is poor")
    return text, bad


def _missing(gp, check):
    """Report the residual variance, which features do not explain, unless neighbours account for it."""
    if check.attrs["holds_residual"]:
        return "", []
    missing, training = check.attrs["missing_mean"], gp.training
    worst = int(check.missing.values.argmax())
    most = float(check.missing.values[worst])
    # Features of all variance leave zero to rounding, of either sign.
    text = f"The features do not explain {max(missing, 0.0):z.1%} of the prior variance, "
    text += f"{max(most, 0.0):z.1%} at row {int(check.obs[worst])}. "
    if not missing <= LIMITS["missing"]:
        if hasattr(gp, "loo") if training is None else training.sigma is not None:
            return text, ["sigma may contain variance that the features do not explain"]
        return text, ["the function lacks variance that the features do not explain"]
    return text, []


def _solver(check, rows):
    """Report errors of iterative solvers, and neighbours chosen at other hyperparameters."""
    a, text, bad = check.attrs, "", []
    # Where all rows' density was compared, what iterations and neighbours leave is in that difference.
    compared = "logp_all" in check or ("logp_exact" in check and a["rows"] >= rows)
    if "residual" in a:
        text += f"Conjugate gradients leave {a['residual']:.1e} of the targets. "
        if not (compared or a["residual"] <= LIMITS["residual"]):
            bad.append("conjugate gradients have not converged")
    if "logdet_se" in a:
        text += f"The log determinant has a standard error of {a['logdet_se']:.2g}, and is too large by "
        text += f"{a['logdet_excess']:.2g} at most. "
        # Predictions take no determinant: what its error does only weighted draws tell.
        weighed = compared and a["draws"] >= FEWEST
        if not (weighed or 0.5 * max(a["logdet_se"], a["logdet_excess"]) <= LIMITS["logdet"]):
            bad.append("the log determinant is uncertain")
    if "neighbors_moved" in a:
        text += f"{a['neighbors_moved']:.0%} of the neighbors would be others at these draws. "
        if not (compared or a["neighbors_moved"] <= LIMITS["neighbors_moved"]):
            bad.append("neighbors were chosen at other lengthscales: call gp.rebuild(point)")
    return text, bad


def remedy(gp, training, check) -> str:
    """Advice on what to change, of what this GP and its likelihood take."""
    if _is_far(check) or _away(check).max(initial=0.0) > LIMITS["reference"]:
        return "Make the basis anew at the posterior mean, gp.recentre(X, idata), and the model with it."
    if check.attrs["holds_residual"]:
        if check.attrs.get("neighbors_moved", 0.0) > LIMITS["neighbors_moved"]:
            return f"Call gp.rebuild(point) at a point of the posterior, or raise {gp.present_knobs}."
        if getattr(training, "is_exact", False):
            return "The likelihood is the exact one: look at its parameters and the data there."
        return f"Raise {gp.present_knobs}, or call gp.rebuild(point) at a point of the posterior."
    text = f"Raise {gp.present_knobs}"
    needed, rank = check.attrs.get("rank_needed", np.nan), check.attrs["rank"]
    if np.isinf(needed) and rank <= check.attrs["rows"] // 2:
        text += f" (more than {check.attrs['rows'] // 2} features are needed)"
    elif rank < needed < np.inf:
        text += f" ({int(needed)} of the best possible features would do; these take more)"
    made = gp.training
    if made is not None and not made.has_rows:  # statistics stand for the rows that neighbours need
        return f"{text}."
    marginal = hasattr(gp, "loo") if made is None else made.gaussian is not None
    free = made is not None and marginal and made.data.weights is not None
    if "VIF" in gp.approximations and marginal and not free:
        return f'{text}, or take approx="VIF", whose neighbors hold what they do not explain.'
    other = "VecchiaMarginal" if marginal else "VecchiaLatent"
    if not gp.present_knobs:
        return f"Take {other}."
    return f"{text}." if type(gp).__name__ == other else f"{text}, or take {other}."


def _correction(gp, check, bad) -> str:
    """Advice to weigh the draws towards the better posterior, where that is another one and can be had."""
    made = gp.training
    if made is None or made.gaussian is None or not made.has_rows or made.data.weights is not None:
        return ""
    if bad == ["Laplace's approximation is poor"]:
        if check.attrs["k_hat_functions"] > LIMITS["k_hat"]:
            return " Draws of the function do not tell by how much: sample it, as sgp.VecchiaLatent does."
        return ' gp.correct(idata, target="likelihood") takes most of its error away.'
    another = any("posterior" in each for each in bad)
    if not another or check.sizes.get("hyperparameter", 0) > MOST_PARAMETERS:
        return ""
    if made.data.size <= MOST_EXACT_ROWS:
        return " Or keep it: gp.correct(idata) makes draws of the exact posterior from these."
    neighbors = check.attrs.get("neighbors", 60)
    return f" Or keep it: gp.correct(idata, neighbors={neighbors}) makes draws of a closer posterior."


def _gap(a: dict, suffix: str, other: str) -> str:
    """Describe the difference between a better log density and the `other`, from a check's attributes."""
    gap, lost, draws = a[f"gap{suffix}"], a[f"lost{suffix}"], a["draws"]
    text = f"{abs(gap):.3g} nats {'above' if gap >= 0.0 else 'below'} {other}"
    if draws > 1:
        text += f", and the difference varies by {lost:.2g} (sd) over {draws} draws"
    return text


def _weights(check, suffix: str) -> tuple[str, bool]:
    """Describe the hyperparameter that weights shift most, and tell whether it shifts little.

    No words, and no shift, where there are too few draws for weights.
    """
    moved = check.get(f"moved{suffix}")
    if moved is None:
        return "", True
    k_hat, lost = check.attrs[f"k_hat{suffix}"], check.attrs[f"lost{suffix}"]
    worst = int(np.abs(moved.values).argmax())
    name, by = str(moved.hyperparameter.values[worst]), float(moved[worst])
    # Weights that are nearly equal can have any k or none, and shift no mean by more than their logs' sd.
    light = k_hat <= LIMITS["k_hat"] or lost <= LIMITS["even"]
    near = bool(light and abs(by) <= LIMITS["moved"])
    return f"{name} shifts by {by:+z.2f} posterior sds{_tail(k_hat)}", near


def _tail(k_hat, name="k-hat") -> str:
    return f" ({name} {k_hat:z.2f})" if np.isfinite(k_hat) else ""
