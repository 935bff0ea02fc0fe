"""Table of log evidences."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.special import softmax

from pymc_scalable_gp.utils.warn import warn


def compare_evidence(results: Mapping) -> pd.DataFrame:
    r"""Models of one data set by their log evidences.

    With ``L_i`` the log evidence of model ``i`` and ``s_i`` its standard error, the difference from
    the best is ``d_i = L_i - L_best``, with standard error ``sqrt(s_i^2 + s_best^2)``, and the
    posterior probability under equal prior probabilities is ``exp(L_i) / sum_j exp(L_j)``.

    Parameters
    ----------
    results : dict
        Name and result of `sample_importance` for each model. The data must be the same.

    Returns
    -------
    pandas.DataFrame
        A row per model, the best first, with columns ``log_evidence``, ``se``, ``difference``,
        ``difference_se``, ``probability`` and ``khat``.

    Raises
    ------
    ValueError
        Without models, for a result that has no log evidence, or where some models have flat priors that
        others lack.

    Warns
    -----
    UserWarning
        If an observed variable of one name has other values in another result.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> found = {}
    >>> for sd in (1.0, 10.0):
    ...     with pm.Model():
    ...         mu = pm.Normal("mu", 0, sd)
    ...         y = pm.Normal("y", mu, 1, observed=[1.0, 2.0, 3.0])
    ...         found[f"sd {sd:.0f}"] = sgp.sample_importance(progressbar=False, random_seed=1)
    >>> sgp.compare_evidence(found)["probability"].round(1).to_dict()
    {'sd 1': 0.7, 'sd 10': 0.3}
    """
    if not isinstance(results, Mapping) or not results:
        raise ValueError(
            "compare_evidence needs a dictionary of names and results of sample_importance, got "
            f"{'an empty one' if isinstance(results, Mapping) else type(results).__name__}"
        )
    attrs = {
        name: getattr(
            each["posterior"] if "posterior" in getattr(each, "children", {}) else each, "attrs", {}
        )
        for name, each in results.items()
    }
    without = [str(name) for name, each in attrs.items() if "log_evidence" not in each]
    if without:
        raise ValueError(
            f"{', '.join(without)}: no log evidence; it comes with sample_importance, and neither with "
            "pm.sample nor with otherwise='nuts' where that took over"
        )
    flat = {str(name): each.get("flat_priors", "") for name, each in attrs.items()}
    if len(set(flat.values())) > 1:
        shown = "; ".join(f"{name}: {which}" for name, which in flat.items() if which)
        raise ValueError(
            "an evidence under flat priors has an arbitrary factor, which these models do not share "
            f"({shown}): give the variables proper priors"
        )
    _warn_of_other_data(results)
    columns = {"log_evidence": "log_evidence", "se": "log_evidence_se", "khat": "khat"}
    table = pd.DataFrame(
        {name: [float(each[key]) for each in attrs.values()] for name, key in columns.items()},
        index=pd.Index(list(attrs), name="model"),
    ).sort_values("log_evidence", ascending=False, kind="stable")
    best = table.iloc[0]
    table.insert(2, "difference", table["log_evidence"] - best["log_evidence"])
    table.insert(3, "difference_se", np.sqrt(table["se"] ** 2 + best["se"] ** 2))
    table.iloc[0, table.columns.get_loc("difference_se")] = 0.0
    table.insert(4, "probability", softmax(table["log_evidence"].to_numpy()))
    return table


def _warn_of_other_data(results: Mapping) -> None:
    """Warn of the first observed variable that holds other values than in a result before."""
    seen: dict = {}
    for name, each in results.items():
        if "observed_data" not in getattr(each, "children", {}):
            continue
        for variable, values in each["observed_data"].data_vars.items():
            before, known = seen.setdefault(variable, (name, values.values))
            if not np.array_equal(known, values.values, equal_nan=values.dtype.kind == "f"):
                warn(
                    f"{variable} is observed with other values in {name} than in {before}: evidences "
                    "compare models of the same rows in the same units. Statistics are stored in another "
                    "form: ignore this for them"
                )
                return
