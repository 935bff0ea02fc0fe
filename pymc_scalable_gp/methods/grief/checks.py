"""What a GRIEF model warns of and refuses."""

import pytensor.tensor as pt
from pymc.gp.cov import Cosine, Periodic

from pymc_scalable_gp.cov.queries import leaves
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.warn import warn

# Above this share of missing prior variance the hyperparameters' posterior is another one.
MISSING_SHARE = 0.05


def check_periods(cov_func) -> None:
    """Refuse a kernel with a free period in a latent model.

    With a period other than the one of the build, a few grid nodes see the same phase and the
    directions that the features were fixed in become dependent: features change sign there, and
    with them f at fixed coefficients. The covariance does not notice.
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
    """Say what to change when the features miss much of the prior variance."""
    total = missing.nodes + missing.rank
    if total <= MISSING_SHARE:
        return
    parts = [
        f"{share:.0%} for want of {what}"
        for share, what in (
            (missing.rank, f"rank (raise rank=, now {rank})"),
            (missing.nodes, "nodes (give a finer grid=)"),
        )
        if share > 0.1 * total
    ]
    warn(
        f"the features miss {total:.0%} of the prior variance at the point of build, "
        f"{' and '.join(parts)}: sigma may be estimated too large. If the hyperparameters there are "
        "unlikely, build at better ones: gp.build(X, point=sgp.subset_map(...))"
    )


def check_weighted(basis, approx) -> None:
    """Raise ValueError for a basis or an `approx` that eigenfunction weights do not go with."""
    if basis == "frozen":
        raise ValueError(
            'weights are for a fixed kernel: basis="frozen" is for one with free parameters'
        )
    if approx not in (None, "DTC"):
        raise ValueError(
            f'weights work with approx="DTC" only, got {approx!r}: the weighted '
            "features no longer approximate k(x, x), which the correction needs"
        )
