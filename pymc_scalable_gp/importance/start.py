"""Where the search of a mode starts: what an observed variable offers, or the initial point."""

from collections.abc import Callable


class Offer:
    """A function of a density that gives a point of its model, or None.

    Kept on a variable's tag; a pickled or copied one offers nothing, as it belongs to another model.
    """

    def __init__(self, find: Callable | None = None):
        self._find = find

    def __call__(self, density) -> dict | None:
        """The point."""
        return None if self._find is None else self._find(density)

    def __reduce__(self):
        return (Offer, ())


def offered_start(density) -> dict | None:
    """The first point that an observed variable of the density's model offers; None where none does."""
    for rv in density.model.observed_RVs:
        offer = getattr(rv.tag, "start", None)
        point = offer(density) if isinstance(offer, Offer) else None
        if point is not None:
            return point
    return None
