"""What the Marginal and the Latent front end share: features and predictions."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.gp import Base
from pymc.gp.mean import Zero
from pymc.gp.util import JITTER_DEFAULT
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data, check_dims, check_given, check_inputs
from pymc_scalable_gp.core.data.keywords import conditional_keywords
from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.features.feature_map import FeatureMap, FeatureSpec
from pymc_scalable_gp.core.likelihoods import predictor as prediction
from pymc_scalable_gp.core.likelihoods.base import Conditioned
from pymc_scalable_gp.cov.queries import describe
from pymc_scalable_gp.utils.graphs import is_random


class FeatureGP(Base):
    """What every GP with a finite feature map can do; base of the public classes.

    `front_ends` says, in errors, which class has the front end that this one lacks; `knobs`, in advice,
    which arguments make this one closer to the kernel.
    """

    approx: str | None = None
    approximations: ClassVar[tuple[str, ...]] = ()
    knobs: ClassVar[str] = "the number of features of each part"

    sum_classes: ClassVar[tuple[type["FeatureGP"], ...]] = ()
    front_ends: ClassVar[dict[str, str]] = {
        "prior": "VecchiaLatent, GriefGP, SKIPLatent or SoftKILatent",
        "marginal_likelihood": "VecchiaMarginal, ExactMarginal, GriefGP, SKIPMarginal, SoftKIMarginal, "
        "KMCGMarginal or CholQRMarginal",
    }

    def __init__(self, spec: FeatureSpec | None, *, mean_func=None, cov_func):
        super().__init__(mean_func=Zero() if mean_func is None else mean_func, cov_func=cov_func)
        self._spec = spec
        self._map: FeatureMap | None = None
        self._unasked: bytes | None = None
        self._reference: dict | None = None
        self._conditioned: Conditioned | None = None
        self._predictors: dict[bool, Any] = {}

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
    def conditioned(self) -> Conditioned | None:
        """The likelihood or latent function that predictions follow from."""
        return self._conditioned

    @property
    def whole_kernel(self) -> bool:
        """Whether `cov_func` is all of the prior covariance."""
        return True

    @property
    def rank(self) -> int:
        """Number of features r; known once ``build(X)`` has run."""
        return self.feature_map.rank

    def features(self, X) -> TensorVariable:
        """Symbolic feature matrix (n, r) at inputs X (n, d); ``phi @ phi.T`` approximates the kernel."""
        tensor = X if isinstance(X, TensorVariable) else check_inputs(X).tensor
        self.build_missing(X)
        return self.feature_map.features(tensor)

    def build(self, X) -> int:
        """Fix what depends on the training inputs X (n, d); returns the rank.

        A likelihood that was made before keeps what it was made of.
        """
        return self._build(check_inputs(X).value)

    @property
    def reference(self) -> dict | None:
        """Hyperparameters that the GP was built at, where they were given."""
        return self._reference

    def _build(self, X: np.ndarray, **options) -> int:
        self._reference, self._unasked = options.get("point"), None
        self._map = self._spec.fit(X, **options)
        return self.rank

    def build_missing(self, X) -> None:
        """Build on training inputs X unless that was done before."""
        if not self.is_built:
            self.build(X)

    def build_for(self, X: Data, bound: bool = True) -> None:
        """Build for a likelihood or a prior of rows X, unless the user did.

        What another likelihood built on other rows is built again. `bound`: what the features miss
        is nowhere else.

        Raises
        ------
        ValueError
            For rows beyond the range of the user's build, where its features hold no variance.
        """
        rows = blake2b(np.ascontiguousarray(X.value)).digest() + str(X.value.shape).encode()
        if self.is_built and self._unasked in (None, rows):
            if bound and not is_random(X.tensor):
                self.feature_map.check_range(X.value)
            return
        self._build_unasked(X.tensor if X.mutable else X.value)
        self._unasked = rows

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

    def check_addable(self) -> None:
        """Raise TypeError if this GP cannot be a part of a sum."""

    def __add__(self, other):
        """Sum of two independent GPs; their features stand side by side."""
        shared = [kind for kind in self.sum_classes if kind in getattr(other, "sum_classes", ())]
        if not shared:
            raise TypeError(f"cannot add {type(self).__name__} and {type(other).__name__}")
        parts = (*self.parts, *other.parts)
        for part in parts:
            part.check_addable()
        return shared[0](parts)

    def prior(self, name, X, *args, **kwargs):
        """Not of this class: see the message."""
        raise NotImplementedError(
            f"{type(self).__name__} integrates the function out, which needs Gaussian noise: call "
            f"marginal_likelihood. For other likelihoods use {self.front_ends['prior']}"
        )

    def marginal_likelihood(self, name, X, y, *args, **kwargs):
        """Not of this class: see the message."""
        raise NotImplementedError(
            f"{type(self).__name__} is for any likelihood: call f = gp.prior(name, X) and write the "
            "likelihood of f. To integrate f out under Gaussian noise use "
            f"{self.front_ends['marginal_likelihood']}"
        )

    # -- predictions ------------------------------------------------------------------------

    def conditional(
        self, name, Xnew, pred_noise=False, given=None, jitter=JITTER_DEFAULT, **kwargs
    ):
        r"""Random variable for the function at new inputs, given the training data.

        .. math:: f_* \sim N(\mu_* + \Phi_*\,m,\; \Phi_* S \Phi_*^\top
                  + \mathrm{diag}(k_{**} - \|\phi_*\|^2) + \mathrm{jitter})

        with :math:`m, S` the posterior mean and covariance of the feature coefficients. Draws are
        joint and cost O(n* r); far from the data their variance returns to the prior's.

        Parameters
        ----------
        name : str
            Name of the random variable.
        Xnew : array, shape (n*, d), or pm.Data
            New inputs.
        pred_noise : bool
            Add the observation noise (Marginal classes with a scalar sigma).
        given : dict, optional
            ``{"X", "y", "sigma", "gp"}`` as in `pm.gp.Marginal`; ``gp`` is the sum that this GP is
            a part of. For a latent GP ``{"gp": total}``.
        jitter : float
            Added to the variance of each point.
        **kwargs
            Passed to the distribution, such as ``dims``.

        Returns
        -------
        TensorVariable, shape (n*,)

        Raises
        ------
        ValueError
            Before ``marginal_likelihood`` or ``prior``, or for bad inputs.
        TypeError
            For an unknown keyword.
        """
        kwargs = conditional_keywords(self, kwargs)
        known, places = self._given(given)
        data = self._new_inputs(Xnew, known)
        check_dims(kwargs.get("dims"), data, "Xnew")
        feature_map, coef = self._features_of(known, places, given)
        variance = self._noise(known, pred_noise) + jitter
        return known.conditional(name, data, feature_map, self.mean_func, coef, variance, **kwargs)

    def predict(
        self, Xnew, point=None, diag=False, pred_noise=False, given=None, model=None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and (co)variance of the function at new inputs for one point, as NumPy arrays.

        Parameters
        ----------
        Xnew : array, shape (n*, d)
        point : dict
            Values of the model's variables, such as ``pm.find_MAP()`` returns.
        diag : bool
            True: variances (n*,), computed in row blocks. False: the n* x n* covariance.
        pred_noise : bool
            Add the observation noise.
        given : dict, optional
            As in :meth:`conditional`.
        model : pm.Model, optional
            Needed outside the model context.

        Returns
        -------
        mean : array, shape (n*,)
        var : array, shape (n*,) or (n*, n*)

        Raises
        ------
        ValueError
            Before ``marginal_likelihood`` or ``prior``, when `point` lacks a value, for a model other
            than the GP's own (a copy, as ``pm.do`` makes it), or for bad inputs.
        """
        known, places = self._given(given)
        data = self._new_inputs(Xnew, known)
        if not diag:
            data = replace(data, grid=None)  # a dense covariance is asked for
        predictor = self._predictor(data, known, places, given, pred_noise, model)
        state = predictor.state(point)
        return predictor.diagonal(state, data.value) if diag else predictor.full(state, data.value)

    def predict_posterior(
        self,
        Xnew,
        idata,
        *,
        num_samples: int | None = None,
        pred_noise: bool = False,
        draws: bool = False,
        given=None,
        progressbar: bool = True,
        random_seed=None,
        model=None,
    ):
        """Mean and sd at new inputs, averaged over posterior draws.

        Parameters
        ----------
        Xnew : array, shape (n*, d)
            Any number of rows: they are taken in blocks.
        idata : DataTree or Dataset
            Result of ``pm.sample`` (its ``posterior`` group), one chain of it, or what ``az.extract``
            makes of it.
        num_samples : int, optional
            Number of draws, taken at random without replacement; all of them when left out.
        pred_noise : bool
            Add the observation noise.
        draws : bool
            Also return a sample of the function, jointly over all rows, for each posterior draw:
            8 n* bytes a draw.
        given : dict, optional
            As in :meth:`conditional`.
        progressbar : bool
            Show progress over the draws.
        random_seed : int, optional
            Seed of the choice of draws and of the samples.
        model : pm.Model, optional
            Needed outside the model context.

        Returns
        -------
        xarray.Dataset
            ``mean`` and ``sd`` over ``obs``: mean and standard deviation of the equal-weight mixture
            of the draws' normal predictions. With `draws`, also ``f`` over ``chain``, ``draw`` and
            ``obs`` (one chain, when `num_samples` picks draws).

        Raises
        ------
        ValueError
            As :meth:`predict`, or when a variable of the model is not in the posterior.
        """
        known, places = self._given(given)
        data = self._new_inputs(Xnew, known)
        predictor = self._predictor(data, known, places, given, pred_noise, model)
        return predictor.mixture(data.value, idata, num_samples, draws, progressbar, random_seed)

    # -- plumbing ---------------------------------------------------------------------------

    def _new_inputs(self, Xnew, known) -> Data:
        """Checked inputs of a prediction, with a warning where the features do not reach."""
        data = check_inputs(Xnew, "Xnew", known.X.value.shape[1], empty=True)
        if len(data.value):
            prediction.warn_outside(known.prediction_map(), data.value)
        return data

    def _given(self, given) -> tuple[Conditioned, Sequence[int] | None]:
        """What to condition on, and this GP's places among the parts of the sum that owns it."""
        given = check_given(given)
        owner = given.get("gp", self)
        places = None
        if owner is not self:
            places = owner.places_of(self) if isinstance(owner, FeatureGP) else None
            if places is None:
                raise ValueError('given["gp"] must be a sum that this GP is a part of: gp1 + gp2')
        known = owner.conditioned_on(given)
        if known is None:
            raise ValueError(
                f"{type(self).__name__} has no data yet: call marginal_likelihood(...) or prior(...) "
                'first, or pass given={"X": X, "y": y, "sigma": sigma, "gp": total}'
            )
        return known, places

    def conditioned_on(self, given: dict) -> Conditioned | None:
        """What predictions follow from under ``given=``: own data, where it brings none."""
        if "X" in given:
            raise ValueError(
                f"{type(self).__name__} has no marginal likelihood: its given takes only 'gp'"
            )
        return self._conditioned

    @property
    def parts(self) -> tuple["FeatureGP", ...]:
        """The GPs that this one is the sum of: itself."""
        return (self,)

    def places_of(self, gp: "FeatureGP") -> list[int] | None:
        """Places of the parts of `gp` among this GP's, or None if one is not among them."""
        found = [
            next((i for i, own in enumerate(self.parts) if own is part), None) for part in gp.parts
        ]
        return None if None in found else found

    def _features_of(self, known, places, given) -> tuple[FeatureMap, Coefficients]:
        if places is None:
            return known.prediction_map(), known.coefficients()
        return known.of_parts(given["gp"].parts, places)

    def _noise(self, known, pred_noise):
        """Noise variance of a new observation (a scalar)."""
        if not pred_noise:
            return pt.constant(0.0)
        if known.sigma is None:
            raise ValueError("pred_noise=True needs a marginal likelihood: the likelihood is yours")
        if known.sigma.ndim:
            raise ValueError(
                "pred_noise=True needs a scalar sigma: with one value a training row the noise of "
                "new rows is unknown. Add it to the result instead"
            )
        return known.sigma**2

    def _predictor(self, data, known, places, given, pred_noise, model):
        """Compiled predictor, kept for the next call on the same model, data and kind of inputs."""
        model = pm.modelcontext(model)
        key = (model, known, data.grid)
        state = (known.state, places)
        held, seen, predictor = self._predictors.get(pred_noise, ((), None, None))
        if len(held) == len(key) and all(a is b for a, b in zip(held, key, strict=True)):
            if seen == state:
                return predictor
        feature_map, coef = self._features_of(known, places, given)
        noise = self._noise(known, pred_noise)
        predictor = self._make_predictor(data, known, feature_map, coef, noise, model)
        self._predictors[pred_noise] = (key, state, predictor)
        return predictor

    def _make_predictor(self, data, known, feature_map, coef, noise, model):
        return known.predictor(feature_map, self.mean_func, coef, noise, model)
