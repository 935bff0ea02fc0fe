"""Keywords of the front ends: those of `pm.gp` keep their meaning there, or an error says what to do."""

from inspect import Parameter, signature
from numbers import Real
from typing import Any

from pymc_scalable_gp.cov.queries import check_kernel
from pymc_scalable_gp.utils.checks import check_keywords
from pymc_scalable_gp.utils.classes import Listed

# What a distribution of PyMC takes beside its parameters.
_DISTRIBUTION = (
    "dims", "shape", "size", "initval", "total_size", "transform", "default_transform",
)  # fmt: skip

# What to do in place of a keyword that is not known.
_GRID = "multiply the kernels into one cov_func=; a grid of inputs is X=sgp.RegularGrid(axes) of"
_KERNEL = "give the kernel as cov_func="
_NOISE = "give the noise's standard deviation to marginal_likelihood"
_ARGUMENTS = {
    "approx": "the class has one treatment of the residual variance: leave it out",
    "mean": "give the mean function as mean_func=",
    "cov": _KERNEL, "kernel": _KERNEL, "sigma": _NOISE, "noise": _NOISE,
}  # fmt: skip
_MARGINAL = {
    "noise": "give the noise's standard deviation as sigma=",
    "observed": "give the observations as y=",
}
_NORMAL = "write the likelihood of f, such as pm.Normal(name, f, sigma, observed=y)"
_PRIOR = {
    "jitter": "the features are not factorised at X, so that there is nothing to stabilise: leave it out",
    "observed": "write the likelihood of f, such as pm.Poisson(name, pm.math.exp(f), observed=counts)",
    "sigma": _NORMAL, "y": _NORMAL,
}  # fmt: skip
# What to do with white noise in the kernel of a class.
_WHITE = {
    "marginal_likelihood": "give it as sigma= of marginal_likelihood",
    "prior": "with a likelihood of your own, drop it",
}
_GIVEN = "give training data other than the model's as given={'X': X, 'y': y, 'sigma': sigma}"
_CONDITIONAL = {
    "Xu": "the points are those of the likelihood or prior",
    "diag": "the variances alone come from gp.predict(Xnew, point, diag=True)",
    "is_observed": "this makes a new random variable; with observed= it has a value",
    "noise": "pred_noise=True adds that of the likelihood",
    "X": _GIVEN, "y": _GIVEN, "sigma": _GIVEN,
}  # fmt: skip


def check_arguments(kind, args: tuple, given: dict) -> None:
    """Raise TypeError for arguments that the constructor of the class `kind` does not know."""
    parameters = list(signature(kind.__init__).parameters.values())[1:]
    known = [each.name for each in parameters]
    if any(each.kind is not Parameter.KEYWORD_ONLY for each in parameters):
        return  # of a sum of GPs, or a subclass that users wrote
    if args:
        raise TypeError(f"{kind.__name__} takes keywords alone: {', '.join(f'{k}=' for k in known)}")
    grid, finer = f"{_GRID} {kind.names_with('grid')}", f"that of pm.gp.HSGP is here {kind.knobs}"
    words = {"cov_funcs": grid, "Xs": grid, "m": finer, "c": finer, "L": finer} | _ARGUMENTS
    words = {name: text for name, text in words.items() if name not in known}
    check_keywords(kind.__name__, given, known, words)
    if "cov_func" in given:
        own = [text for ability, text in _WHITE.items() if ability in kind.abilities]
        check_kernel(given["cov_func"], "; ".join(own or _WHITE.values()), "fixed matrix" in kind.abilities)


def _points(owner: Listed) -> str:
    return (
        f"inducing points as an argument are those of {owner.names_with('Xu', 'and')}; other classes "
        f"have {owner.names_with('points', 'and')}"
    )


def marginal_keywords(owner, given: dict) -> tuple[float, dict[str, Any]]:
    """Keywords of `owner`'s ``marginal_likelihood``, as `pm.gp.Marginal` takes them.

    The variance that ``jitter=`` adds to the targets', and the arguments of the distribution.
    """
    where, rest = f"{type(owner).__name__}.marginal_likelihood", dict(given)
    if not rest.pop("is_observed", True):
        raise TypeError(
            f"{where} takes no is_observed=False: y is observed. A function without observations is "
            f"gp.prior(name, X) of {owner.names_with('prior')}"
        )
    jitter = rest.pop("jitter", 0.0)
    if isinstance(jitter, bool) or not isinstance(jitter, Real) or not jitter >= 0:
        raise ValueError(f"jitter must be a number, zero or more, got {jitter!r}")
    check_keywords(where, rest, _DISTRIBUTION, _MARGINAL | {"Xu": _points(owner)})
    return float(jitter), rest


def prior_keywords(owner, given: dict) -> dict[str, Any]:
    """Keywords of `owner`'s ``prior`` for the deterministic variable, as `pm.gp.Latent` takes them."""
    where, rest = f"{type(owner).__name__}.prior", dict(given)
    if not rest.pop("reparameterize", True):
        raise TypeError(
            f"{where} takes no reparameterize=False: the coefficients of the features are sampled. "
            "SKIPLatent's centered=True gives them the kernel's scale"
        )
    outputs = rest.pop("n_outputs", 1)
    if outputs != 1:
        raise TypeError(
            f"{where} takes no n_outputs={outputs}: make a GP for each output, or relate them by "
            "SKIPLatent's task_dim= and task_cov="
        )
    check_keywords(where, rest, ("dims",), _PRIOR | {"Xu": _points(owner)})
    return rest


def conditional_keywords(owner, given: dict) -> dict[str, Any]:
    """Keywords of `owner`'s ``conditional`` for the distribution."""
    where = f"{type(owner).__name__}.conditional"
    check_keywords(where, given, (*_DISTRIBUTION, "observed"), _CONDITIONAL)
    return given
