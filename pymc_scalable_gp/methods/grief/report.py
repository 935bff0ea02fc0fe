"""How far posterior draws went from a frozen basis' reference, and what the features lost there."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from pymc_scalable_gp.core.data.draws import (
    at_most,
    entry_names,
    posterior_draws,
    posterior_moments,
)
from pymc_scalable_gp.core.data.inputs import check_inputs, check_sigma, check_target
from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.cov.evaluate import kernel_matrix
from pymc_scalable_gp.methods.grief.frozen import FrozenMap
from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.evaluate import compile_outputs


def frozen_report(
    gp, idata, X, y, sigma, *, rows: int = 500, num_samples: int = 20, random_seed=None, model=None
) -> xr.Dataset:
    r"""Compare a frozen basis with GRIEF itself and the exact kernel, at posterior draws.

    On a random subsample of rows and at some draws: the log density of the targets with the frozen
    features, with features recomputed at the draw, and with the kernel itself. What counts is how the
    differences *vary* over the draws: a constant cancels in the posterior.

    Parameters
    ----------
    gp : GriefGP
        With ``basis="frozen"``, built.
    idata : DataTree
        What `pm.sample` returned.
    X, y : arrays, shapes (n, d) and (n,)
        Rows, or a sample of them.
    sigma : tensor, scalar
        Noise standard deviation of the model.
    rows, num_samples : int
        Rows and draws that are compared, at most.
    random_seed : int, optional
        Of the rows and draws.
    model : pm.Model, optional
        Needed outside the model context.

    Returns
    -------
    xarray.Dataset
        Over ``sample``: ``frozen``, ``recomputed`` and ``exact``, log densities; ``excess``, the largest
        share by which the frozen features' variance exceeds the kernel's. Over ``hyperparameter``:
        ``reference``, ``mean``, ``sd`` and ``moved``, the distance of the posterior mean from the reference
        in posterior sds. Attributes ``lost_recomputed`` and ``lost_exact``: sd over the draws of
        the log densities' differences, in nats. Well below 1 the posterior is that of the other
        density; else make the basis anew at the posterior mean: ``gp.recentre(X, idata)``.

    Raises
    ------
    TypeError, ValueError
        For a GP without a frozen basis, and bad data.

    Notes
    -----
    O(rows^3) a draw.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.linspace(0.0, 1.0, 30)[:, None]
    >>> y = np.sin(6.0 * X[:, 0])
    >>> with pm.Model():
    ...     ell, sigma = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("sigma", 1)
    ...     gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ell), rank=12, basis="frozen")
    ...     rank = gp.build(X, point={"ell": 0.3})
    ...     draws = {"ell": np.array([[0.3, 0.31, 0.32]]), "sigma": np.full((1, 3), 0.1)}
    ...     idata = az.from_dict({"posterior": draws})  # in place of pm.sample()
    ...     report = sgp.frozen_report(gp, idata, X, y, sigma)
    >>> report.moved.values.round(2)
    array([1.22])
    >>> report.attrs["lost_recomputed"] < 0.1, report.attrs["lost_exact"] < 0.1
    (True, True)
    """
    feature_map = gp.feature_map if gp.is_built else None
    if not isinstance(feature_map, FrozenMap):
        raise TypeError('frozen_report is for a GriefGP with basis="frozen" that is built')
    model, rng = pm.modelcontext(model), np.random.default_rng(random_seed)
    X = check_inputs(X, d=feature_map.base.columns).value
    y = check_target(y, len(X)).value
    chosen = np.sort(rng.permutation(len(X))[: check_count("rows", rows)])
    X, y = X[chosen], y[chosen]
    outputs = _outputs(gp, feature_map, X, check_sigma(sigma, None))
    function, inputs = compile_outputs(outputs, model)
    few = at_most(idata, check_count("num_samples", num_samples))
    draws = posterior_draws(idata, inputs, few, rng)
    found = np.array([_compare(y, *function(*values)) for values in draws.values])
    names = ("frozen", "recomputed", "exact", "excess")
    report = xr.Dataset(
        {name: ("sample", column) for name, column in zip(names, found.T, strict=True)}
    )
    report = report.merge(_moved(feature_map.reference, idata))
    for other in ("recomputed", "exact"):
        report.attrs[f"lost_{other}"] = float((report.frozen - report[other]).std())
    return report


def _outputs(gp, feature_map, X, sigma):
    """Both feature matrices, the kernel, the mean and the noise's variance at the rows."""
    X = pt.constant(X)
    K = kernel_matrix(gp.cov_func, X)
    phi, recomputed = feature_map.features(X), feature_map.base.features(X)
    return [phi, recomputed, K, mean_vector(gp.mean_func, X), sigma**2]


def _compare(y, phi, recomputed, K, mean, noise):
    """Log densities with each covariance, and by how much the features' variance exceeds the kernel's."""
    covariances = phi @ phi.T, recomputed @ recomputed.T, K
    excess = (np.diagonal(covariances[0]) / np.diagonal(K)).max() - 1.0
    return [*(_logp(y - mean, C, noise) for C in covariances), max(excess, 0.0)]


def _logp(e, C, noise):
    """``log N(e | 0, C + noise I)``."""
    sign, logdet = np.linalg.slogdet(C + noise * np.eye(len(e)))
    quad = e @ np.linalg.solve(C + noise * np.eye(len(e)), e)
    return -0.5 * (logdet + quad + len(e) * np.log(2.0 * np.pi)) if sign > 0 else np.nan


def _moved(reference, idata) -> xr.Dataset:
    """Reference, posterior mean and sd of each hyperparameter, and the distance in sds."""
    moments = posterior_moments(idata, reference)
    table = []
    for name, value in reference.items():
        means, sds = moments[name]
        for place in np.ndindex(value.shape):
            table.append((value[place], means[place], sds[place]))
    start, mean, sd = np.array(table).T
    columns = {"reference": start, "mean": mean, "sd": sd, "moved": (mean - start) / sd}
    return xr.Dataset(
        {name: ("hyperparameter", column) for name, column in columns.items()},
        {"hyperparameter": entry_names(reference)},
    )
