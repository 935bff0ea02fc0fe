"""Sums of independent GPs."""

from collections.abc import Sequence
from functools import reduce
from operator import add

from pymc.gp.mean import Add as MeanSum

from pymc_scalable_gp.core.features.feature_map import SumMap
from pymc_scalable_gp.core.gp import FeatureGP
from pymc_scalable_gp.utils.classes import as_typed


def joint_approx(parts) -> str:
    """The `approx` given to some parts of a sum, or their common default; TypeError if they disagree."""
    given = {part.given_approx for part in parts} - {None}
    wanted = given or {part.approx for part in parts}
    if len(wanted) > 1:
        raise TypeError(
            f"cannot add GPs with approx {', '.join(map(repr, sorted(wanted)))}: give all the same "
            'approx=, which beside VecchiaMarginal is "VIF"'
        )
    return wanted.pop()


class Sum(FeatureGP):
    """A sum of independent GPs; its mean function and kernel are the sums of theirs."""

    def __init__(self, parts: Sequence[FeatureGP], **options):
        mean_func = reduce(MeanSum, [part.mean_func for part in parts])
        cov_func = reduce(add, [part.cov_func for part in parts])
        super().__init__(mean_func=mean_func, cov_func=cov_func, **options)
        self._parts = tuple(parts)

    @property
    def parts(self):
        """The GPs that it is the sum of: each is predicted with ``given=``."""
        return self._parts


@as_typed
class Additive(Sum):
    """A sum of independent GPs, each of which is built and trained by itself."""

    def __getattr__(self, name):
        """Raise an error that says where an attribute of the parts is found."""
        owners = [part for part in self.__dict__.get("_parts", ()) if hasattr(type(part), name)]
        if owners and not name.startswith("_"):
            raise AttributeError(
                f"a sum of GPs has no {name!r}: take that of each part, gp.parts, or give one "
                f"{type(owners[0]).__name__} the kernel k1 + k2"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def prior_cov(self):
        """Sum of the parts' prior covariances."""
        return reduce(add, [part.prior_cov for part in self._parts])

    @property
    def reference(self):
        """What the parts were built at."""
        found = {k: v for part in self._parts for k, v in (part.reference or {}).items()}
        return found or None

    @property
    def is_built_unasked(self):
        """Whether no part was built by the user."""
        return all(part.is_built_unasked for part in self._parts)

    @property
    def is_built(self):
        """Whether all parts are built."""
        return all(part.is_built for part in self._parts)

    @property
    def feature_map(self):
        """The parts' features side by side."""
        return SumMap([part.feature_map for part in self._parts])

    def build(self, X, **options) -> int:
        """Build every part on training inputs X (n, d), with the options of its class."""
        with self.in_model():
            for part in self._parts:
                part.build(X, **options)
        return self.rank

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of the first part that was built on a table."""
        return next((part.columns for part in self._parts if part.columns), ())

    def build_missing(self, X, asked=True) -> None:
        """Build the parts that were not built before."""
        for part in self._parts:
            part.build_missing(X, asked)

    def build_for(self, X, bound=True, again=True) -> None:
        """Build the parts."""
        for part in self._parts:
            part.build_for(X, bound, again)
