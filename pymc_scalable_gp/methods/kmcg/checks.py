"""Warnings when KMCG's likelihood is made."""

from pymc import modelcontext

from pymc_scalable_gp.methods.kmcg.likelihood import KrylovLikelihood
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.warn import warn

# Up to this number of rows the log determinant's error is computed: it costs as much as one density.
CHECKED_ROWS = 2048
# Error of the log density, in nats, above which a warning follows.
TOLERATED = 2.0


def warn_of_logdet(likelihood: KrylovLikelihood, probes: int | None) -> None:
    """Warn if free hyperparameters would be inferred with a determinant that is far off.

    `probes` is the user's argument: 0 asks for the determinant of the features, without a warning.
    """
    if not is_random(*likelihood.basis.operator.parameters, likelihood.sigma):
        return
    if likelihood.logdet is not None:
        _warn_of_probes(likelihood)
    elif probes is None:
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
        found.append(
            f"by a standard error of {error:.1f} with probes={count} (give probes={needed})"
        )
    if bias > TOLERATED:
        found.append(f"by up to {bias:.1f} downwards with n_iter={steps} (raise n_iter)")
    if found:
        warn(
            "the log determinant is estimated; at the model's initial point the log density is off "
            + ", and ".join(found)
            + ". Inferred hyperparameters are off accordingly; check() reports the error at other points"
        )
