"""Adam steps on SoftKI's interpolation points and the model's free variables."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.variational.updates import adam
from pytensor.gradient import disconnected_grad

from pymc_scalable_gp.core.data.inputs import Data
from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.fit.hyperparameters import Hyperparameters
from pymc_scalable_gp.cov.queries import categorical_columns
from pymc_scalable_gp.methods.softki.features import SoftKIMap
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.blocks import blocks
from pymc_scalable_gp.utils.compiled import compiled

OBJECTIVES = ("exact", "pseudo")

# Most training rows from which the predictions are made that compare epochs.
ERROR_ROWS = 16_384


class Trainer:
    """Compiled steps on shared copies of the points Z and of the flat vector of hyperparameters."""

    def __init__(
        self, gp, model, sigma, Z, *, rows, learning_rate, objective, probes, use_priors, rng, mode
    ):  # fmt: skip
        self.Z = pytensor.shared(Z, name="Z", shape=Z.shape)
        X, y = pt.matrix("X", dtype="float64"), pt.vector("y", dtype="float64")
        index = pt.lvector("rows")
        phi = _features(gp, self._moving(gp.cov_func), Z, X)
        noise = (sigma[index] if sigma.ndim else sigma) ** 2
        kdiag = gp.cov_func(X, diag=True).astype("float64")
        terms = [phi, noise, mean_vector(gp.mean_func, X), kdiag]
        self.hyper = hyper = Hyperparameters(terms, model)
        self.theta = pytensor.shared(hyper.start(), name="theta", shape=(hyper.size,))
        phi, noise, mean, kdiag = hyper.as_functions_of(self.theta, terms)
        prior = hyper.log_prior(self.theta) if use_priors else 0.0
        residual = y - mean
        # A batch has no neighbours; a latent GP has no approx.
        approx = {"VIF": "FITC", None: "DTC"}.get(gp.approx, gp.approx)
        found = lowrank_logp(phi, noise, residual, kdiag=kdiag, approx=approx)
        fit, draws = found.logp, {}
        if objective == "pseudo":
            fit, draws = _pseudo(phi, noise, residual, found, probes, rng)
        loss = -fit / y.shape[0] - prior / rows
        trained = [self.Z, self.theta] if hyper.size else [self.Z]
        self.updates = adam(loss, trained, learning_rate=learning_rate)
        options = {"mode": mode, "on_unused_input": "ignore", "trust_input": True}
        self.step = pytensor.function([X, y, index], loss, updates=self.updates | draws, **options)
        scaled = phi / pt.sqrt(noise[:, None] if noise.ndim else noise)
        target = residual / pt.sqrt(noise)
        gram = [scaled.T @ scaled, scaled.T @ target]
        self.normal = compiled([X, y, index], gram, trust_input=True)
        self.predict = compiled([X, y], [phi, mean], trust_input=True)

    def _moving(self, cov_func):
        """The points, of which categories stay as they are."""
        d = self.Z.type.shape[1]
        held = np.isin(np.arange(d), categorical_columns(cov_func, d))
        return pt.where(held, disconnected_grad(self.Z), self.Z) if held.any() else self.Z

    def state(self) -> list[np.ndarray]:
        """Copies of points, flat variables, and Adam's moments and step count."""
        return [v.get_value(borrow=False) for v in self.updates]

    def restore(self, state):
        """Set what :meth:`state` returned, of a trainer of the same variables and points."""
        for variable, value in zip(self.updates, state, strict=True):
            variable.set_value(value)

    def values(self):
        """Points, and the free variables untransformed by name."""
        return self.Z.get_value(), self.hyper.untransformed(self.theta.get_value())

    def error(self, train, held):
        """Root mean square error at the batch `held` of the prediction from the batch `train`."""
        rank = self.Z.get_value(borrow=True).shape[0]
        gram, cross = np.eye(rank), np.zeros(rank)
        for rows, X in blocks(train.X):
            more, vector = self.normal(X, train.y[rows], train.rows[rows])
            gram += more
            cross += vector
        coef = np.linalg.solve(gram, cross)
        total = 0.0
        for rows, X in blocks(held.X):
            phi, mean = self.predict(X, held.y[rows])
            total += ((held.y[rows] - mean - phi @ coef) ** 2).sum()
        return np.sqrt(total / len(held.y))


def _features(gp, Z, values, X):
    """Features (b, m) at a batch, of the points Z, which have these values at the start."""
    origin = np.zeros(values.shape[1])
    found = SoftKIMap(gp.cov_func, gp.temperature, Data(Z, values, True), origin, origin)
    return product(found.mixing(), found.basis(X).T, transpose_a=True).T


def _pseudo(phi, noise, residual, found, probes, rng):
    r"""Hutchinson's pseudo-loss, negated: its gradient estimates that of the log density.

    ``b_0' S b_0 / 2 - b_0' e - sum_j a_j' S b_j / 2L`` with ``S b_j = a_j`` and ``S b_0 = e``, the b
    held constant, and ``a_j`` Gaussian vectors of norm ``n^1/2``, so that ``E a a' = I``. Also returns
    the update of the random generator.
    """
    generator = pytensor.shared(np.random.default_rng(rng.integers(2**63)), name="probes")
    n = residual.shape[0]
    next_rng, a = pt.random.normal(size=(n, probes), rng=generator, return_next_rng=True)
    a = a * pt.sqrt(n / (a**2).sum(axis=0))
    _logp, alpha, _coef, root, variance = found
    inner = a / variance[:, None]
    solved = inner - phi @ (root.T @ (root @ (phi.T @ inner))) / variance[:, None]
    solved, b0 = disconnected_grad(solved), disconnected_grad(alpha)[:, None]
    noise = noise[:, None] if noise.ndim else noise

    def form(left, right):
        return ((phi.T @ left) * (phi.T @ right)).sum() + (left * right * noise).sum()

    value = 0.5 * form(b0, b0) - b0[:, 0] @ residual - 0.5 / probes * form(a, solved)
    return value, {generator: next_rng}
