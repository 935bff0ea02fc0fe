"""Keywords that users of `pm.gp` pass to the front ends: taken with its meaning, or refused in words."""

from numbers import Real
from typing import Any, NamedTuple

from pymc_scalable_gp.utils.checks import check_keywords

# What a distribution of PyMC takes beside its parameters.
_DISTRIBUTION = (
    "dims", "shape", "size", "initval", "total_size", "transform", "default_transform",
)  # fmt: skip

_POINTS = (
    "inducing points as an argument are SoftKIMarginal's and SoftKILatent's; GriefGP and SKIP have "
    "rank=, CholQRMarginal n_inducing= and gp.build(X, indices=...)"
)
_MARGINAL = {
    "Xu": _POINTS,
    "noise": "give the noise's standard deviation as sigma=",
    "observed": "give the observations as y=",
}
_PRIOR = {
    "Xu": _POINTS,
    "jitter": "the features are not factorised at X, so that there is nothing to stabilise: leave it out",
    "observed": "write the likelihood of f, such as pm.Poisson(name, pm.math.exp(f), observed=counts)",
    "sigma": "write the likelihood of f, such as pm.Normal(name, f, sigma, observed=y)",
    "y": "write the likelihood of f, such as pm.Normal(name, f, sigma, observed=y)",
}
_GIVEN = (
    "give training data, if other than the model's own, as given={'X': X, 'y': y, 'sigma': sigma}"
)
_CONDITIONAL = {
    "Xu": "the points are those of the likelihood or prior",
    "diag": "the variances alone come from gp.predict(Xnew, point, diag=True)",
    "is_observed": "this makes a new random variable; with observed= it has a value",
    "noise": "pred_noise=True adds that of the likelihood",
    **dict.fromkeys(("X", "y", "sigma"), _GIVEN),
}


class MarginalKeywords(NamedTuple):
    """Variance that ``jitter=`` adds to the targets', and what goes to the distribution."""

    jitter: float
    rest: dict[str, Any]


def marginal_keywords(owner, given: dict) -> MarginalKeywords:
    """Keywords of `owner`'s ``marginal_likelihood``, as `pm.gp.Marginal` takes them.

    Raises
    ------
    TypeError
        For a keyword that is not known, or ``is_observed=False``.
    ValueError
        For a jitter that is not a number, or negative.
    """
    where, rest = f"{type(owner).__name__}.marginal_likelihood", dict(given)
    if not rest.pop("is_observed", True):
        raise TypeError(
            f"{where} takes no is_observed=False: y is observed. A function without observations is "
            f"gp.prior(name, X) of {owner.front_ends['prior']}"
        )
    jitter = rest.pop("jitter", 0.0)
    if isinstance(jitter, bool) or not isinstance(jitter, Real) or not jitter >= 0:
        raise ValueError(f"jitter must be a number, zero or more, got {jitter!r}")
    check_keywords(where, rest, _DISTRIBUTION, _MARGINAL)
    return MarginalKeywords(float(jitter), rest)


def prior_keywords(owner, given: dict) -> dict[str, Any]:
    """Keywords of `owner`'s ``prior`` for the deterministic variable, as `pm.gp.Latent` takes them.

    Raises
    ------
    TypeError
        For a keyword that is not known, ``reparameterize=False``, or more than one output.
    """
    where, rest = f"{type(owner).__name__}.prior", dict(given)
    if not rest.pop("reparameterize", True):
        raise TypeError(
            f"{where} takes no reparameterize=False: the coefficients of the features are what is "
            "sampled. SKIPLatent's centered=True gives them the kernel's scale"
        )
    outputs = rest.pop("n_outputs", 1)
    if outputs != 1:
        raise TypeError(
            f"{where} takes no n_outputs={outputs}: call prior once for each output, or relate them "
            "by SKIPLatent's task_dim= and task_cov="
        )
    check_keywords(where, rest, ("dims",), _PRIOR)
    return rest


def conditional_keywords(owner, given: dict) -> dict[str, Any]:
    """Keywords of `owner`'s ``conditional`` for the distribution.

    Raises
    ------
    TypeError
        For a keyword that is not known.
    """
    where = f"{type(owner).__name__}.conditional"
    check_keywords(where, given, (*_DISTRIBUTION, "observed"), _CONDITIONAL)
    return given
