"""What KMCG's likelihood warns of when it is made."""

from pymc import modelcontext

from pymc_scalable_gp.methods.kmcg.likelihood import KrylovLikelihood
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.warn import warn

# Up to this number of rows the log determinant's error is computed: it costs as much as one density.
CHECKED_ROWS = 2048
# Error of the log density, in nats, above which a warning follows.
TOLERATED = 2.0


def warn_of_logdet(likelihood: KrylovLikelihood, asked: int | None) -> None:
    """Warn where free hyperparameters would be inferred from a determinant that is far off.

    `asked` is what ``probes=`` was given: 0 asks for the features' determinant, and is not warned of.
    """
    if not is_random(*likelihood.basis.operator.parameters, likelihood.sigma):
        return
    if likelihood.logdet is not None:
        _warn_of_probes(likelihood)
    elif asked is None:
        obstacle = f'approx="{likelihood.data.approx}"'
        if likelihood.basis.is_subset:
            obstacle = "inducing= takes a subset of the rows"
        elif likelihood.sigma.ndim:
            obstacle = "there is one sigma per row"
        warn(
            f"without probes ({obstacle}) the density takes the determinant of the "
            f"{likelihood.basis.steps} features alone, under which lengthscales tend to zero and the noise "
            'is wrong: infer the hyperparameters with approx="DTC", one sigma and all rows, or with '
            "another class; with fixed ones give probes=0, which also says that this is meant"
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
            + ". Hyperparameters follow that error; check() tells it at other points"
        )
