"""Where the search of a mode starts: what observed variables offer, or the initial point."""

from collections import ChainMap
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
    """The point that observed variables of the density's model offer; None where none does.

    All are asked, as each may have neighbours to choose. Where two have a value of one variable, the first
    one's is taken.
    """
    offers = [getattr(rv.tag, "start", None) for rv in density.model.observed_RVs]
    points = [offer(density) for offer in offers if isinstance(offer, Offer)]
    return dict(ChainMap(*(point for point in points if point is not None))) or None
