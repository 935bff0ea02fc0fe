"""Observations at new inputs under any likelihood: their mean and sd, and draws of them."""

from functools import cached_property

import numpy as np
import pytensor.tensor as pt
from numpy.polynomial.hermite import hermgauss
from pymc.distributions.continuous import WeibullBetaRV
from pymc.distributions.distribution import DiracDelta
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.moments.means import mean as mean_of
from pymc.pytensorf import find_rng_nodes, reseed_rngs
from pytensor.tensor.random import basic as random
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.draws import posterior_draws, refuse_failed
from pymc_scalable_gp.core.likelihoods.predictor import Mixture, as_dataset
from pymc_scalable_gp.utils.blocks import with_progress
from pymc_scalable_gp.utils.compiled import check_reached, compiled, model_inputs, point_values

NODES, WEIGHTS = hermgauss(32)


def _weibull(alpha, beta):
    first, second = pt.gamma(1.0 + 1.0 / alpha), pt.gamma(1.0 + 2.0 / alpha)
    return beta**2 * (second - first**2)


# Variances by the parameters that the distributions' Ops take; scales where users may give rates.
VARIANCES = {
    random.NormalRV: lambda mu, sigma: sigma**2,
    random.LaplaceRV: lambda mu, b: 2.0 * b**2,
    random.LogNormalRV: lambda mu, sigma: pt.expm1(sigma**2) * pt.exp(2.0 * mu + sigma**2),
    random.ExponentialRV: lambda scale: scale**2,
    random.GammaRV: lambda shape, scale: shape * scale**2,
    random.BetaRV: lambda a, b: a * b / ((a + b) ** 2 * (a + b + 1.0)),
    random.BernoulliRV: lambda p: p * (1.0 - p),
    random.BinomialRV: lambda n, p: n * p * (1.0 - p),
    random.PoissonRV: lambda mu: mu,
    random.NegBinomialRV: lambda n, p: n * (1.0 - p) / p**2,
    random.GeometricRV: lambda p: (1.0 - p) / p**2,
    random.LogisticRV: lambda mu, s: (np.pi * s) ** 2 / 3.0,
    random.StudentTRV: lambda nu, mu, sigma: pt.switch(nu > 2.0, sigma**2 * nu / (nu - 2.0), np.inf),
    WeibullBetaRV: _weibull,
    DiracDelta.rv_type: lambda value: 0.0,
}


def moments(variable: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Mean and variance (n,), or (n, k) of classes' indicators; ValueError where they are not known."""
    op = variable.owner.op
    if isinstance(op, random.CategoricalRV):
        (p,) = op.dist_params(variable.owner)
        return p, p * (1.0 - p)
    if isinstance(op, MixtureRV):
        return _of_mixture(variable)
    for kind, variance in VARIANCES.items():
        if isinstance(op, kind):
            mean = mean_of(variable).astype("float64")
            return mean, variance(*op.dist_params(variable.owner)) * pt.ones_like(mean)
    raise ValueError(
        f"the mean and variance of {getattr(op, 'name', None) or type(op).__name__} are not known: take "
        "draws of new observations, predict_posterior(..., pred_noise=True, draws=True), instead"
    )


def _of_mixture(variable):
    """Moments of a mixture, from its components'; a single component has the mixture on its last axis."""
    weights, *components = variable.owner.op.dist_params(variable.owner)
    pairs = [moments(each) for each in components]
    means, variances = (pt.stack(each, axis=-1) for each in zip(*pairs, strict=True))
    if len(components) == 1:
        means, variances = means[..., 0], variances[..., 0]
    mean = (weights * means).sum(axis=-1)
    return mean, (weights * (variances + (means - mean[..., None]) ** 2)).sum(axis=-1)


class ObservationPredictor:
    r"""A `Predictor` of new observations, not of the function.

    With ``f ~ N(m, s^2)`` at a draw, ``E[y] = int E[y | f] N(f) df`` and the variance is that of
    ``E[y | f]`` plus the mean of ``var(y | f)``, by Gauss-Hermite quadrature of 32 nodes.
    """

    def __init__(self, inner, rows, model):
        self.inner, self.rows, self.model = inner, rows, model
        self.inputs = model_inputs([rows.variable, *inner.inputs], model)
        check_reached(rows.dependencies, self.inputs)
        self._places = [self.inputs.index(v) for v in inner.inputs]

    @cached_property
    def _moments(self):
        """Compiled mean and variance given the function."""
        return compiled([self.rows.f, *self.inputs], list(moments(self.rows.variable)))

    @cached_property
    def _drawn(self):
        """Compiled draw given the function."""
        return compiled([self.rows.f, *self.inputs], self.rows.variable)

    def state(self, point):
        """State of the function, and values of the model's variables, at a point."""
        return self._at(point_values(self.inputs, point, self.model))

    def _at(self, values, rng=None):
        return self.inner.at([values[place] for place in self._places], rng), values

    def diagonal(self, state, X):
        """Mean and variance (n*,) of new observations, or (n*, k) for classes."""
        inner, values = state
        f, var = self.inner.diagonal(inner, X)
        centre, first, second, within = self._moments(f, *values)[0], 0.0, 0.0, 0.0
        centre = np.where(np.isfinite(centre), centre, 0.0)
        for node, weight in zip(NODES, WEIGHTS / np.sqrt(np.pi), strict=True):
            mean, own = self._moments(f + np.sqrt(2.0 * var) * node, *values)
            away = mean - centre  # large means leave squares without the digits of small variances
            first, second = first + weight * away, second + weight * away**2
            within = within + weight * own
        return centre + first, np.maximum(second - first**2, 0.0) + within

    def full(self, state, X):
        """Raise ValueError: covariances of observations are not known."""
        raise ValueError("pred_noise=True under likelihood= gives variances: take diag=True")

    alone = full

    def mixture(self, X, idata, num_samples, sample, progressbar, random_seed):
        """Dataset of the mean and sd of the draws' mixture; draws of f and of y with `sample`.

        The moments are those of the draws of y where the distribution's own are not known.
        """
        rng = np.random.default_rng(random_seed)
        draws = posterior_draws(idata, self.inputs, self.model, num_samples, rng)
        generators = find_rng_nodes([self.rows.variable])
        try:
            known = bool(moments(self.rows.variable))
        except ValueError:
            if not sample:
                raise
            known = False
        mixture, functions, observations = Mixture(), [], []
        for values in with_progress(draws.values, "Predicting over draws", len(draws), progressbar):
            state = self._at(values, rng if sample else None)
            if known:
                mixture.add(*self.diagonal(state, X))
                if mixture.failed[-1]:
                    continue  # nothing is drawn from NaN
            if sample:
                functions.append(self.inner.sampled(state[0], X, rng))
                reseed_rngs(generators, int(rng.integers(2**31)))
                observations.append(self._drawn(functions[-1], *values))
            if not known:
                mixture.add(observations[-1], 0.0)
        refuse_failed(mixture.failed, "prediction")
        samples = {"f": functions, "y": observations} if sample else {}
        return as_dataset(mixture.mean, mixture.variance, draws, **samples)
