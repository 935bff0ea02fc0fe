"""Where the search of a mode starts: what an observed variable offers, or the initial point."""

from collections.abc import Callable


class Offer:
    """A function of (model, random_seed) that gives a point of the model, or None.

    Kept on a variable's tag; a pickled or copied one offers nothing, as it belongs to another model.
    """

    def __init__(self, find: Callable | None = None):
        self._find = find

    def __call__(self, model, random_seed) -> dict | None:
        """The point."""
        return None if self._find is None else self._find(model, random_seed)

    def __reduce__(self):
        return (Offer, ())


def offer_start(variable, find: Callable) -> None:
    """Let `sample_importance` start where `find` says, in models that observe `variable`."""
    variable.tag.start = Offer(find)


def offered_start(model, random_seed) -> dict | None:
    """The first point that an observed variable of the model offers; None where none does."""
    for rv in model.observed_RVs:
        offer = getattr(rv.tag, "start", None)
        point = offer(model, random_seed) if isinstance(offer, Offer) else None
        if point is not None:
            return point
    return None
