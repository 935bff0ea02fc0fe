"""A GP with a finite feature map before it has seen data: kernel, mean and features."""

from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance
from pymc.gp.gp import Base
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data, check_inputs, digest, refuse_other_columns
from pymc_scalable_gp.core.data.keywords import check_arguments
from pymc_scalable_gp.core.data.mean import check_mean, mean_vector
from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.cov.queries import check_rows, describe
from pymc_scalable_gp.utils.classes import Listed, as_typed
from pymc_scalable_gp.utils.compiled import check_reached
from pymc_scalable_gp.utils.graphs import is_random, model_here


@as_typed
class BuiltGP(Listed, Base):
    """A GP whose features are built on training inputs; base of the public classes.

    `knobs` says, in advice, which arguments make this one closer to the kernel.
    """

    approx: str | None = None
    approximations: ClassVar[tuple[str, ...]] = ()
    knobs: ClassVar[str] = "the number of features of each part"
    sum_classes: ClassVar[tuple[type["BuiltGP"], ...]] = ()

    def __new__(cls, *args, **kwargs):
        """Raise TypeError for arguments that the class does not take."""
        check_arguments(cls, args, kwargs)
        return super().__new__(cls)

    def __init__(self, *, mean_func=None, cov_func):
        super().__init__(mean_func=check_mean(mean_func), cov_func=cov_func)
        self._map: FeatureMap | None = None
        self._columns: tuple[str, ...] = ()
        self._width = 0
        self._unasked: bytes | None = None
        self._reference: dict | None = None

    @property
    def present_knobs(self) -> str:
        """Those of the `knobs` that the settings, the likelihood and the data leave open; "" if none is."""
        return self.knobs

    @property
    def feature_map(self) -> FeatureMap:
        """The features; known once ``build(X)`` has run."""
        if self._map is None:
            raise AttributeError("the features are known once the GP is built: call build(X) first")
        return self._map

    @property
    def is_built(self) -> bool:
        """Whether what depends on the training inputs is fixed."""
        return self._map is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the table that it was built on; else none."""
        return self._columns

    @property
    def is_built_unasked(self) -> bool:
        """Whether a likelihood or prior built it, at the model's initial point."""
        return self._unasked is not None

    @property
    def prior_cov(self) -> BaseCovariance:
        """All of the prior covariance, that of tasks included."""
        return self.cov_func

    def prior_graphs(self, X: np.ndarray) -> list[TensorVariable]:
        """Kernel at the first of rows X (n, d), and mean: the hyperparameters are behind them."""
        return [self.prior_cov(pt.constant(X[:1])), mean_vector(self.mean_func, pt.constant(X))]

    @property
    def rank(self) -> int:
        """Number of features r; known once ``build(X)`` has run."""
        return self.feature_map.rank

    def features(self, X) -> TensorVariable:
        """Symbolic feature matrix (n, r) at inputs X (n, d); ``phi @ phi.T`` approximates the kernel."""
        tensor = X if isinstance(X, TensorVariable) else self.inputs_of(X).tensor
        self.build_missing(X)
        return self.feature_map.features(tensor)

    def inputs_of(self, X) -> Data:
        """Checked inputs, of whatever kind this class takes."""
        data = check_inputs(X, "X")
        refuse_other_columns(data, self.columns, "X")
        return data

    def build(self, X) -> int:
        """Fix what depends on the training inputs X (n, d); returns the rank.

        A likelihood that was made before keeps what it was made of.
        """
        return self._build(check_inputs(X))

    @property
    def reference(self) -> dict | None:
        """Hyperparameters that the GP was built or rebuilt at, where they were given or found."""
        return self._reference

    def _build(self, X: Data, **options) -> int:
        self._reference, self._unasked = options.get("point"), None
        check_rows(self.cov_func, X.value)
        self._map = self._fit(X.value, **options)
        self._columns, self._width = X.columns, X.value.shape[1]
        return self.rank

    def _fit(self, X: np.ndarray, **options) -> FeatureMap:
        """Features for training inputs (n, d), with the options of ``build``: a method's own."""
        raise NotImplementedError

    def build_missing(self, X, asked: bool = True) -> None:
        """Build on inputs X unless that was done before; unless `asked`, a likelihood may build again."""
        if not self.is_built:
            self.build(X)
            if not asked:
                self._unasked = digest(self.inputs_of(X).value)

    def build_for(self, X: Data, bound: bool = True, again: bool = True) -> None:
        """Build for a likelihood or a prior of rows X, unless the user did.

        Features that were built for another likelihood, of other rows, are built `again`. `bound`: the
        likelihood has no variance beside that of the features, so that rows must lie within their range.

        Raises ValueError for rows beyond the range of the user's build, where its features hold no
        variance; and for a kernel or mean of variables that are not the model's.
        """
        if (model := model_here(needed=False)) is not None:
            check_reached(self.prior_graphs(X.value), model.basic_RVs)
        rows = digest(X.value)
        if self.is_built and (self._unasked in (None, rows) or not again):
            if X.value.shape[1] != self._width:
                raise ValueError(f"X has {X.value.shape[1]} columns, the GP was built on {self._width}")
            check_rows(self.prior_cov, X.value)
            refuse_other_columns(X, self._columns, "X")
            self.feature_map.outside(X.value)  # raises for categories that are new
            if bound and self.feature_map.input_range and not is_random(X.tensor):
                self.feature_map.input_range.check(X.value)
            return
        self._build_unasked(X.tensor if X.mutable else X.value)
        self._unasked, self._columns = rows, X.columns

    def _build_unasked(self, X) -> None:
        self.build(X)

    def settings(self) -> dict[str, Any]:
        """Arguments of the class besides mean and covariance, by name."""
        return {}

    def __repr__(self):
        shown = {"cov_func": describe(self.cov_func)}
        shown |= {name: repr(value) for name, value in self.settings().items()}
        inside = ", ".join(f"{name}={text}" for name, text in shown.items())
        built = f"rank {self.rank}" if self.is_built else "not built"
        path = getattr(self, "likelihood_path", None)
        return f"<{type(self).__name__}({inside}): {built}{f', {path} likelihood' if path else ''}>"

    @property
    def frozen(self) -> FeatureMap | None:
        """Map whose features are those of one `reference`, if it is one; its `base` follows the kernel."""
        return None

    @property
    def parts(self) -> tuple["BuiltGP", ...]:
        """The GPs that this one is the sum of: itself."""
        return (self,)

    def places_of(self, gp: "BuiltGP") -> list[int] | None:
        """Places of the parts of `gp` among this GP's, or None if one is not among them."""
        found = [next((i for i, own in enumerate(self.parts) if own is part), None) for part in gp.parts]
        return None if None in found else found

    def check_addable(self) -> None:
        """Raise TypeError if this GP cannot be a part of a sum."""

    def __add__(self, other):
        """Sum of two independent GPs; their features stand side by side."""
        shared = [kind for kind in self.sum_classes if kind in getattr(other, "sum_classes", ())]
        if not shared:
            raise TypeError(
                f"cannot add {type(self).__name__} and {type(other).__name__}: make both of one class, or "
                "give one GP the kernel k1 + k2"
            )
        parts = (*self.parts, *other.parts)
        for part in parts:
            part.check_addable()
        return shared[0](parts)

    def prior(self, *args, **kwargs):
        """Raise TypeError: another class has this method, and the message names it."""
        raise TypeError(
            f"{type(self).__name__} integrates the function out: call marginal_likelihood, with sigma= or, "
            "for other likelihoods, likelihood=. For a function that enters several likelihoods use "
            f"{self.names_with('prior')}"
        )

    def marginal_likelihood(self, *args, **kwargs):
        """Raise TypeError: another class has this method, and the message names it."""
        raise TypeError(
            f"{type(self).__name__} is for any likelihood: call f = gp.prior(name, X) and write the "
            "likelihood of f. To integrate f out use "
            f"{self.names_with('marginal_likelihood')}"
        )
