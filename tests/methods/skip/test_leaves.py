"""Columns of categories, and columns of few values: exact, against the dense kernel."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from marks import often
from numpy.testing import assert_allclose
from pymc.gp import cov as c

import pymc_scalable_gp as sgp
from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.cov.queries import is_categorical
from pymc_scalable_gp.methods.skip.leaves import CategoryLeaf, ValueLeaf, few_values
from pymc_scalable_gp.utils.compiled import evaluate

RNG = np.random.default_rng(0)
N, SIGMA = 80, 0.2
CATEGORY = RNG.integers(0, 5, N)
X = np.column_stack([CATEGORY, RNG.uniform(0.0, 1.0, N)])
SHIFT = np.array([0.0, 3.0, -2.0, 1.0, -3.0])
Y = SHIFT[CATEGORY] + np.sin(4.0 * X[:, 1]) + SIGMA * RNG.standard_normal(N)
XNEW = np.column_stack([np.arange(5), np.linspace(0.1, 0.9, 5)])


class Same(c.Covariance):
    """A user's kernel of whole numbers, which says nothing of itself."""

    def full(self, X, Xs=None):
        X, Xs = self._slice(X, Xs)
        Z = X if Xs is None else Xs
        return pt.eq(X, Z.T) + 0.2

    def diag(self, X):
        return pt.alloc(1.2, X.shape[0])


class Continuous(Same):
    categorical = False


class Table(Same):
    categorical = True


def jaccard(a, b):
    return len(a & b) / len(a | b)


SETS = [{0}, {0, 1}, {1, 2}, {3, 4}, {0, 3}]
WAVE = c.ExpQuad(2, ls=0.5, active_dims=[1])
ON = {"input_dim": 2, "active_dims": [0]}
KERNELS = {
    "Hamming": lambda: 4.0 * sgp.cov.Hamming(2, 1.0, active_dims=[0]) * WAVE,
    "Hamming on both": lambda: 4.0 * sgp.cov.Hamming(2, 1.0, active_dims=[0]) * WAVE
    + sgp.cov.Hamming(2, 2.0, active_dims=[0]),
    "user's": lambda: 4.0 * Same(**ON) * WAVE,
    "user's, told": lambda: 4.0 * Table(**ON) * WAVE,
    "on objects": lambda: 4.0 * sgp.cov.FromFunction(jaccard, SETS, **ON) * WAVE,
    "two on one column": lambda: (
        sgp.cov.Hamming(2, 1.0, active_dims=[0]) * c.ExpQuad(ls=3.0, **ON) * WAVE
    ),
    "power": lambda: 4.0 * sgp.cov.Hamming(2, 1.0, active_dims=[0]) ** 2 * WAVE,
    "continuous, short": lambda: 4.0 * c.Matern12(ls=0.05, **ON) * WAVE,
    "linear": lambda: (0.1 + c.Linear(c=1.0, **ON)) * WAVE,
}  # fmt: skip


def dense(kernel, X, Y, Xnew, sigma=SIGMA):
    """Log density, and mean and sd of predictions, of the exact GP."""
    K, C, v = evaluate([kernel(X), kernel(Xnew, X), kernel(Xnew, diag=True)])
    S = K + sigma**2 * np.eye(len(X))
    logp = -0.5 * (Y @ np.linalg.solve(S, Y) + np.linalg.slogdet(2.0 * np.pi * S)[1])
    W = np.linalg.solve(S, C.T)
    return logp, W.T @ Y, np.sqrt(v - (C * W.T).sum(axis=1))


def fitted(kernel, X=X, Y=Y, sigma=SIGMA, **options):
    with pm.Model() as model:
        gp = sgp.SKIPMarginal(cov_func=kernel, **({"grid_size": 60, "rank": 15} | options))
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
    return gp, model


def check_exact(kernel, X, Y, Xnew, rtol, **options):
    gp, model = fitted(kernel, X, Y, **options)
    logp, mean, sd = dense(kernel, X, Y, Xnew)
    with model:
        assert_allclose(model.compile_logp(mode="FAST_COMPILE")({}), logp, rtol=rtol)
        found, var = gp.predict(Xnew, point={}, diag=True)
    assert_allclose(found, mean, atol=10 * rtol * np.abs(Y).max())
    assert_allclose(np.sqrt(var), sd, rtol=100 * rtol)
    return gp


@pytest.mark.parametrize(
    "name", often(KERNELS, "Hamming on both", "user's, told", "on objects", "two on one column", "linear")
)
def test_the_exact_kernel(name):
    """Hamming x ExpQuad was off by 130 nats and its sds by a factor of ten."""
    check_exact(KERNELS[name](), X, Y, XNEW, 1e-4)


def test_which_columns_have_a_leaf_of_their_own():
    plain, own = (product_terms(k(1))[0].factors[0] for k in (lambda d: c.ExpQuad(d, ls=1.0), Same))
    for factor, count, expected in (
        (plain, 6, ValueLeaf), (plain, 7, None), (own, 20, CategoryLeaf), (own, 21, None)
    ):  # fmt: skip
        kind, values = few_values(factor, np.repeat(np.arange(float(count)), 2), 20, 6)
        assert kind is expected
        assert_allclose(values, np.arange(count))


def test_more_categories_than_the_rank():
    """Of 40 categories, on a column beyond the grid's size, all are kept; or the leading 20."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(0, 40, 200) * 3 + 7, rng.uniform(0.0, 1.0, 200)])
    Y = rng.standard_normal(200)
    kernel = sgp.cov.Hamming(2, 1.0, active_dims=[0]) * WAVE
    check_exact(kernel, X, Y, X[:5], 1e-4, rank=40, grid_size=40)
    alone = sgp.cov.Hamming(1, 1.0)
    gp, _ = fitted(alone, X[:, :1], Y, rank=20, grid_size=20)
    phi, K = evaluate([gp.features(X[:, :1]), alone(X[:, :1])])
    assert phi.shape == (200, 20)
    left = np.linalg.eigvalsh(K)[:-20]
    assert_allclose(np.trace(K - phi @ phi.T), left.sum(), rtol=1e-6)


def test_parameters_may_be_random():
    with pm.Model() as model:
        ls = pm.HalfNormal("ls")
        kernel = sgp.cov.Hamming(2, ls, active_dims=[0]) * WAVE
        gp = sgp.SKIPMarginal(cov_func=kernel, grid_size=60, rank=15)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=SIGMA)
        value = model.rvs_to_values[ls]
        (density,) = model.replace_rvs_by_values([model.logp(vars=[model["y"]])])
        function = pytensor.function([value], [density, pt.grad(density, value)], mode="FAST_COMPILE")
    for log_ls in (-0.7, 0.6):
        exact = [
            dense(sgp.cov.Hamming(2, np.exp(log_ls + step), active_dims=[0]) * WAVE, X, Y, XNEW)[0]
            for step in (0.0, 1e-4, -1e-4)
        ]
        found, slope = function(log_ls)
        assert_allclose(found, exact[0], rtol=1e-4)
        assert_allclose(slope, (exact[1] - exact[2]) / 2e-4, rtol=1e-2)


@pytest.mark.parametrize("name", ["Hamming", "user's", "on objects"])
def test_a_new_category_is_refused(name):
    gp, model = fitted(KERNELS[name]())
    with model, pytest.raises(ValueError, match=r"column 0 holds 7, which no .* compares categories"):
        gp.predict(np.array([[7.0, 0.5]]), point={})
    if name == "Hamming":
        with model, pytest.raises(ValueError, match=r"column 0 holds 1\.5, 8, which no training"):
            gp.predict(np.array([[8.0, 0.5], [1.5, 0.1], [1.0, 0.1]]), point={})


def test_a_new_category_in_data_gives_nan_not_a_neighbour():
    with pm.Model() as model:
        data = pm.Data("X", X)
        gp = sgp.SKIPMarginal(cov_func=KERNELS["Hamming"](), grid_size=60, rank=15)
        gp.marginal_likelihood("y", X=data, y=Y, sigma=SIGMA)
        logp = model.compile_logp(mode="FAST_COMPILE")
        assert np.isfinite(logp({}))
        changed = X.copy()
        changed[3, 0] = 6.0
        pm.set_data({"X": changed})
        assert np.isnan(logp({}))


def test_continuous_kernels_go_on_between_and_beyond_the_values():
    kernel = KERNELS["continuous, short"]()
    kernel = 4.0 * c.Matern52(ls=1.5, **ON) * WAVE
    Xnew = np.array([[0.5, 0.3], [2.2, 0.8], [6.0, 0.5], [-9.0, 0.1]])
    check_exact(kernel, X, Y, Xnew, 1e-4)


def test_latent_too():
    with pm.Model() as model:
        gp = sgp.SKIPLatent(cov_func=KERNELS["Hamming"](), grid_size=60, rank=15)
        gp.prior("f", X=X)
        phi, K = evaluate([gp.features(X), gp.cov_func(X)], model=model)
    assert_allclose(phi @ phi.T, K, atol=1e-3)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (c.ExpQuad(1, ls=1.0) * 2.0 + 1.0, False),
        (c.Polynomial(1, c=0.0, d=2, offset=1.0), False),
        (c.Gibbs(1, lambda x: x), False),
        (sgp.cov.HistogramIntersection(1), False),
        (c.ExpQuad(1, ls=1.0) * sgp.cov.Hamming(1, 1.0), True),
        (sgp.cov.Spectrum(["abc", "abd"]), True),
        (c.Coregion(1, W=np.ones((2, 1)), kappa=np.ones(2)), True),
        (c.WarpedInput(1, sgp.cov.Hamming(1, 1.0), lambda x: x), True),
        (Same(1), None),
        (Same(1) * c.ExpQuad(1, ls=1.0), None),
        (Same(1) * sgp.cov.Hamming(1, 1.0), True),
        (Continuous(1), False),
    ],
)
def test_is_categorical(kernel, expected):
    assert is_categorical(kernel) is expected
