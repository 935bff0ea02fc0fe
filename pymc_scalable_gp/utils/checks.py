"""Checks of options, and the wording of their errors."""

import numpy as np
from pytensor.raise_op import Assert, CheckAndRaise


class Refuse(Assert):
    """`Assert` in a compiled function that raises ValueError."""

    def __init__(self, message: str):
        CheckAndRaise.__init__(self, ValueError, message)


class RefuseShape(Refuse):
    """`Refuse` of a shape that the graph specifies too: that raises under JAX, which leaves checks out."""


def check_kernel_values(*values) -> None:
    """Raise ValueError for values of a kernel, at the hyperparameters of a build, that are not finite."""
    if not all(np.isfinite(each).all() for each in values):
        raise ValueError(
            "the kernel is not finite at the hyperparameters of the build: give build(X, point=...) other "
            "ones"
        )


def check_choice(name: str, value, options) -> None:
    """Raise unless `value` is one of `options`."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}")


def check_count(name: str, value, least: int = 1) -> int:
    """A whole number not below `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an int, got {type(value).__name__} {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_positive(name: str, value) -> float:
    """A number above zero, and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be a number, got {type(value).__name__} {value!r}")
    if not value > 0 or not np.isfinite(value):
        raise ValueError(f"{name} must be positive and finite, got {value}")
    return float(value)


def generator(random_seed) -> np.random.Generator:
    """A generator of independent streams, of a seed or as it is given."""
    if isinstance(random_seed, np.random.RandomState):
        raise TypeError(
            "random_seed must be an int or a numpy.random.Generator, such as numpy.random.default_rng(1), "
            "got a RandomState"
        )
    return np.random.default_rng(random_seed)


def check_keywords(where: str, given, known, words) -> None:
    """Raise TypeError for a name in `given` that is not `known`; `words` has the way out for some."""
    for name in given:
        if name in words:
            raise TypeError(f"{where} takes no {name}=: {words[name]}")
    unknown = [f"{name}=" for name in given if name not in known]
    if unknown:
        raise TypeError(f"{where} takes no {', '.join(unknown)}; it knows {', '.join(known)}")
