"""A GP with a likelihood or prior, and the compiled predictors that follow from it."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from weakref import WeakSet

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_scalable_gp.core.built import BuiltGP
from pymc_scalable_gp.core.checking.comparison import check_comparable, exact_rows
from pymc_scalable_gp.core.data.inputs import (
    Data,
    check_given,
    check_inputs,
    held_value,
    refuse_other_columns,
)
from pymc_scalable_gp.core.data.mean import check_mean_at
from pymc_scalable_gp.core.data.missing import refuse_replaced
from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.features.reach import warn_beyond, warn_together
from pymc_scalable_gp.core.likelihoods.base import Training
from pymc_scalable_gp.cov.queries import check_rows, fixed_matrices
from pymc_scalable_gp.utils.classes import as_typed
from pymc_scalable_gp.utils.graphs import model_here, present_value
from pymc_scalable_gp.utils.recent import Recent


@as_typed
class TrainedGP(BuiltGP):
    """A GP with a likelihood or prior in a model: base of the public classes."""

    def __init__(self, *, mean_func=None, cov_func):
        super().__init__(mean_func=mean_func, cov_func=cov_func)
        self._training: Training | None = None
        self._model: pm.Model | None = None
        self._predictors, self._givens, self._exact = Recent(), Recent(), Recent()
        self._left_out = Recent()
        self._left: WeakSet[pm.Model] = WeakSet()
        self._mean_follows = False  # once its values were seen to follow from X

    @property
    def model(self) -> pm.Model | None:
        """The model of the likelihood or prior."""
        return self._model

    @property
    def training(self) -> Training | None:
        """The likelihood or latent function that predictions follow from."""
        return self._training

    def check_unconditioned(self) -> None:
        """Raise ValueError if predictions follow from a likelihood or prior in this model already."""
        here = model_here(needed=False)
        if here is not None and self._model is here:
            raise ValueError(
                f"this {type(self).__name__} has a likelihood or prior in this model already, from which "
                "its predictions follow: make another GP with the same cov_func for other data"
            )

    def _follow(self, training: Training) -> None:
        """Make predictions follow from `training`, in the model of the context."""
        if self._model is not None:
            self._left.add(self._model)
        self._training, self._model = training, model_here()

    def in_model(self):
        """Context of the model that is one already, or else of that of the likelihood or prior."""
        return model_here(needed=False) or self.model or nullcontext()

    def _build(self, X, **options):
        with self.in_model():
            return super()._build(X, **options)

    def model_of(self, model: pm.Model | None = None, given=None) -> pm.Model:
        """The model that was given, that of the context, or that of the likelihood or prior."""
        owner = given.get("gp", self) if isinstance(given, Mapping) else self
        owner = owner if isinstance(owner, TrainedGP) else self  # others are refused where it is looked at
        model = model_here(model_here(model, needed=False) or owner.model)
        if owner.has_left(model):
            raise ValueError(
                "this GP has a likelihood in another model since, from which its predictions follow: make "
                "a GP with the same cov_func for each model"
            )
        return model

    def has_left(self, model: pm.Model) -> bool:
        """Whether predictions followed from a likelihood or prior in this model, and no longer do."""
        return model is not self._model and model in self._left

    def _new_inputs(self, Xnew, training, pred_noise=False) -> Data:
        """Checked inputs of a prediction."""
        data = check_inputs(Xnew, "Xnew", empty=True)
        noisy = training.gaussian if pred_noise else None
        if fixed_matrices(self.cov_func):
            _refuse_elsewhere(data, training.X)
        kernels = [*(part.cov_func for part in self.parts), noisy and noisy.data.noise_cov]
        self._check_inputs_as(training, data, "Xnew", kernels)
        return data

    def _check_inputs_as(self, training, data: Data, name: str, kernels: Sequence) -> None:
        """Raise ValueError for columns that are no likelihood's, or rows that the kernels do not take."""
        came, d = data.value.shape[1], training.X.value.shape[1]
        if came != d:
            raise ValueError(f"{name} has {came} columns, the GP was built on {d}")
        refuse_other_columns(data, training.X.columns or self.columns, name)
        if len(data.value):
            self._check_mean(training.X, data.value)
            for cov_func in (each for each in kernels if each is not None):
                check_rows(cov_func, data.value, name)
            training.at_mode.prediction_map().outside(data.value)  # raises for categories that are new

    def _check_mean(self, rows: Data, X: np.ndarray) -> None:
        """Raise ValueError for a mean function that has values of the likelihood's rows alone."""
        if not self._mean_follows:
            present = present_value(rows.tensor)
            own = np.array_equal(X, rows.value if present is None else present)
            check_mean_at(self.mean_func, X, own)
            self._mean_follows = not own

    @staticmethod
    def _warn_beyond(training, data, together: bool, point=dict, model=None) -> None:
        """Warn where the prior's features lose variance and nothing holds it, at a point of the model.

        Or, if rows are predicted `together`, what they share of it.
        """
        if not training.at_mode.holds_residual:
            warn_beyond(training.at_mode.prior_map(), data.value, point, model)
            if together:
                warn_together(training.at_mode.prior_map(), data.value, point, model)

    def _given(self, given, exact: bool = False, model=None) -> tuple[Training, Sequence[int] | None]:
        """The likelihood or prior to condition on, and this GP's places in the sum that it is a part of."""
        given = check_given(given)
        owner = given.get("gp", self)
        places = None
        if owner is not self:
            places = owner.places_of(self) if isinstance(owner, TrainedGP) else None
            if places is None:
                raise ValueError('given["gp"] must be a sum that this GP is a part of: gp1 + gp2')
        with model or owner.in_model():
            training = owner.conditioned_on(given)
        if training is None:
            raise ValueError(
                f"{type(self).__name__} has no data yet: call marginal_likelihood(...) or prior(...) "
                'first, or pass given={"X": X, "y": y, "sigma": sigma, "gp": total}'
            )
        refuse_replaced(training)
        if not exact:
            return training, places
        if places is not None:
            raise ValueError("exact=True predicts a sum as a whole: leave given= out, or exact=")
        check_comparable(self, training)
        return self._exact.get((training,), training.present_data, lambda: exact_rows(self, training)), None

    def conditioned_on(self, given: dict) -> Training | None:
        """The likelihood or prior under ``given=``; this GP's own where it brings no data."""
        if "X" in given:
            raise ValueError(f"{type(self).__name__} has no marginal likelihood: its given takes only 'gp'")
        return self._training

    def _features_of(self, training, places, given) -> tuple[FeatureMap, Coefficients]:
        rows = training.predictive
        if places is None:
            return rows.prediction_map(), rows.coefficients()
        return rows.of_parts(given["gp"].parts, places)

    def _noise(self, training, pred_noise):
        """Noise variance of a new observation (a scalar)."""
        if not pred_noise:
            return pt.constant(0.0)
        if training.sigma is None:
            raise ValueError(
                "pred_noise=True needs Gaussian noise here: with a likelihood of your own draw the "
                "function and observations from it"
            )
        if training.sigma.ndim:
            raise ValueError(
                "pred_noise=True needs a scalar sigma: with one value per training row the noise of "
                "new rows is unknown. Add it to the result instead"
            )
        return training.sigma**2

    def _predictor(self, data, training, places, given, pred_noise, model, likelihood=None):
        """Compiled predictor, kept for the next calls with the same model, data and kind of inputs."""

        def make():
            feature_map, coef = self._features_of(training, places, given)
            noise = self._noise(training, pred_noise and not training.any_likelihood)
            source = training.of_observations() if pred_noise else training
            found = self._make_predictor(data, source, feature_map, coef, noise, model)
            return training.observing(found, likelihood, model) if pred_noise else found

        if likelihood is not None and not pred_noise:
            raise TypeError("likelihood= is for new observations: give pred_noise=True with it")
        if places is not None and pred_noise and training.any_likelihood:
            raise ValueError("pred_noise=True is for the sum, whose likelihood it is: leave given= out")
        if likelihood is not None:
            return make()  # what the function reads may have changed
        key = (training.present_data, places, bool(pred_noise))
        return self._predictors.get((model, training, data.grid), key, make)

    def _make_predictor(self, data, training, feature_map, coef, noise, model):
        return training.predictive.predictor(feature_map, self.mean_func, coef, noise, model)


def _refuse_elsewhere(new: Data, rows: Data) -> None:
    """Raise ValueError unless new inputs are those of the likelihood, at which a fixed matrix is known."""
    if new.mutable or not np.array_equal(new.value, held_value(rows, "X")):
        raise ValueError(
            "cov_func holds a fixed matrix, which is known at the likelihood's rows alone: give their X as "
            'Xnew; or predict a GP without it, that is a part of a sum, with given={"gp": gp1 + gp2}'
        )
