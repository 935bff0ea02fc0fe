"""Warnings and refusals of GRIEF models."""

import pytensor.tensor as pt
from pymc.gp.cov import Cosine, Periodic

from pymc_scalable_gp.core.features.reach import MISSING_SHARE
from pymc_scalable_gp.cov.queries import leaves
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.warn import warn


def check_periods(cov_func) -> None:
    """Raise ValueError for a kernel with a free period, in a latent model.

    At a period other than that of the build, grid nodes may have the same phase, and the fixed basis
    becomes dependent: features change sign there, and with them f at fixed coefficients. The
    covariance does not change.
    """
    for leaf in leaves(cov_func):
        inner = getattr(leaf, "cov_func", None)  # of a warped or scaled kernel
        if inner is not None:
            check_periods(inner)
        name = {Periodic: "period", Cosine: "ls"}.get(type(leaf))
        if name is not None and is_random(pt.as_tensor_variable(getattr(leaf, name))):
            raise ValueError(
                f"{type(leaf).__name__} has a free {name}=, with which the latent density of GriefGP "
                "jumps: fix it, or use marginal_likelihood (Gaussian noise), or sgp.SKIPLatent (one "
                "or two inputs)"
            )


def warn_missing(missing, rank: int) -> None:
    """Warn where the features leave much of the prior variance unexplained, with what to change."""
    total = missing.nodes + missing.rank
    if total <= MISSING_SHARE:
        return
    causes = {
        f"the rank is too low (raise rank=, now {rank})": missing.rank,
        "the grid is too coarse (give a finer grid=)": missing.nodes,
    }
    parts = [
        f"{share:.0%} because {cause}" for cause, share in causes.items() if share > 0.1 * total
    ]
    warn(
        f"the features do not explain {total:.0%} of the prior variance at the point of build, "
        f"{' and '.join(parts)}: sigma may be estimated too large. If the hyperparameters there are "
        "unlikely, build at better ones: gp.build(X, point=sgp.subset_map(...))"
    )
