"""Refusals and warnings when KMCG's likelihood is made."""

from pymc import modelcontext

from pymc_scalable_gp.core.features.reach import MISSING_SHARE, missing_share
from pymc_scalable_gp.core.likelihoods.base import MarginalData
from pymc_scalable_gp.methods.kmcg.likelihood import KrylovLikelihood
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.warn import warn

# Up to this number of rows the log determinant's error is computed: it costs as much as one density.
CHECKED_ROWS = 2048
# Error of the log density, in nats, above which a warning follows.
TOLERATED = 2.0


def check_integrable(gp, X) -> None:
    """Raise TypeError or ValueError if a GP takes no ``likelihood=`` with inputs X."""
    if gp.probes:
        raise ValueError(
            "probes= are for Gaussian noise: under likelihood= the determinant is that of the features"
        )
    if X is not None and not isinstance(X, RegularGrid):
        raise TypeError(
            "KMCG's features are made of Gaussian targets, but on a grid, where likelihood= takes the "
            "eigenvectors of its axes. Where X lies on one, give grid, order = "
            f"sgp.RegularGrid.from_points(X), and y[order]; else take {gp.names_with('likelihood')}"
        )


def warn_of_features(data: MarginalData) -> None:
    """Warn if the features leave much of the prior variance unexplained at the model's initial point."""
    share = missing_share(data.feature_map, data.X)
    if share > MISSING_SHARE:
        warn(
            f"the features do not explain {share:.0%} of the prior variance at the model's initial point: "
            f"raise n_iter=, now {data.feature_map.rank}, unless lengthscales are longer than there"
        )


def warn_of_logdet(likelihood: KrylovLikelihood, probes: int | None) -> None:
    """Warn if free hyperparameters would be inferred with a determinant that is far off.

    `probes` is the user's argument: 0 asks for the determinant of the features, without a warning. That
    of a feature for each distinct row is exact.
    """
    if not is_random(*likelihood.basis.operator.parameters, likelihood.sigma):
        return
    if likelihood.logdet is not None:
        _warn_of_probes(likelihood)
    elif probes is None and (likelihood.basis.is_subset or not likelihood.basis.spans):
        obstacle = f'approx="{likelihood.data.approx}"'
        if likelihood.basis.is_subset:
            obstacle = "inducing= takes a subset of the rows"
        elif likelihood.sigma.ndim:
            obstacle = "there is one sigma per row"
        warn(
            f"without probes ({obstacle}) the density takes the determinant of the "
            f"{likelihood.basis.steps} features alone, under which lengthscales tend to zero and the noise "
            'is wrong: infer the hyperparameters with approx="DTC", one sigma and all rows, or with '
            "another class; or give probes=0 where they are fixed or this density is what you want"
        )


def _warn_of_probes(likelihood):
    if likelihood.data.size > CHECKED_ROWS:
        return
    count, steps = likelihood.settings.probes, likelihood.basis.steps
    error, bias = 0.5 * likelihood.logdet.errors(model=modelcontext(None).root)[0]
    found = []
    if error > TOLERATED:
        needed = 4 * int(-(-count * (error / TOLERATED) ** 2 // 4))
        found.append(f"by a standard error of {error:.1f} with probes={count} (give probes={needed})")
    if bias > TOLERATED:
        found.append(f"by up to {bias:.1f} downwards with n_iter={steps} (raise n_iter)")
    if found:
        warn(
            "the log determinant is estimated; at the model's initial point the log density is off "
            + ", and ".join(found)
            + ". Inferred hyperparameters are off accordingly; check() reports the error at other points"
        )
