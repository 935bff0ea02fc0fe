"""Noise with a covariance, as `pm.gp.Marginal` takes it, in the exact class."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.checking.comparison import with_neighbors
from pymc_scalable_gp.utils.compiled import evaluate

cov = pm.gp.cov
RNG = np.random.default_rng(4)
X = np.sort(RNG.uniform(0.0, 10.0, 30))[:, None]
Y = np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(30)
NEW = np.linspace(0.5, 11.0, 7)[:, None]
POINT = {"ell": 1.2, "size": 0.3, "sd": 0.2}


def hyperparameters():
    return (pm.HalfNormal(name) for name in ("ell", "size", "sd"))


def fitted(kind, **data):
    with pm.Model() as model:
        ell, size, sd = hyperparameters()
        gp = kind(cov_func=cov.ExpQuad(1, ls=ell))
        noise = size**2 * cov.Matern32(1, ls=0.4) + cov.WhiteNoise(sd) + cov.WhiteNoise(0.05)
        gp.marginal_likelihood("y", **{"X": X, "y": Y, "sigma": noise} | data)
    return gp, model


def matrix(kernel, *inputs):
    return kernel(*inputs).eval()


def dense():
    """Kernel matrices of the function between all rows, old and new, and of the noise."""
    both = np.concatenate([X, NEW])
    noise = matrix(POINT["size"] ** 2 * cov.Matern32(1, ls=0.4), both)
    white = POINT["sd"] ** 2 + 0.05**2
    return matrix(cov.ExpQuad(1, ls=POINT["ell"]), both), noise + white * np.eye(len(both))


def logp_at_point(model):
    logs = {f"{name}_log__": np.log(value) for name, value in POINT.items()}
    (y,) = model.observed_RVs
    return model.compile_logp(y)(logs), model.compile_dlogp()(logs)


def test_the_density_has_the_noises_covariance():
    _, model = fitted(sgp.ExactMarginal)
    K, N = dense()
    n = len(X)
    value, gradient = logp_at_point(model)
    assert_allclose(value, stats.multivariate_normal(cov=(K + N)[:n, :n]).logpdf(Y), rtol=1e-9)
    # PyMC adds 1e-6 to the diagonal.
    expected = logp_at_point(fitted(pm.gp.Marginal)[1])
    assert_allclose([value, *gradient], [expected[0], *expected[1]], rtol=1e-3)


@pytest.mark.parametrize("pred_noise", [False, True])
def test_predictions_are_of_the_function_and_those_with_noise_of_another_run(pred_noise):
    gp, model = fitted(sgp.ExactMarginal)
    K, N = dense()
    n = len(X)
    solved = np.linalg.solve((K + N)[:n, :n], np.c_[Y, K[:n, n:]])
    mean, cov_ = K[n:, :n] @ solved[:, 0], K[n:, n:] - K[n:, :n] @ solved[:, 1:]
    if pred_noise:
        cov_ = cov_ + N[n:, n:]
    options = {"pred_noise": pred_noise, "model": model}
    found = gp.predict(NEW, POINT, **options)
    assert_allclose(found[0], mean, rtol=1e-7, atol=1e-9)
    assert_allclose(found[1], cov_, rtol=1e-7, atol=1e-9)
    found = gp.predict(NEW, POINT, diag=True, **options)
    assert_allclose(found[1], np.diag(cov_), rtol=1e-7, atol=1e-9)
    with model:
        f = gp.conditional("f", NEW, pred_noise=pred_noise, jitter=0.0)
    found = evaluate(f.owner.op.dist_params(f.owner), POINT, model)
    assert_allclose(found[0], mean, rtol=1e-7, atol=1e-9)
    assert_allclose(found[1], cov_, rtol=1e-7, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_rows_left_out():
    gp, model = fitted(sgp.ExactMarginal)
    idata = pm.sample_prior_predictive(40, model=model, random_seed=1)
    # All but the same draws: their weights, which loo smooths, have to differ.
    draws = idata.prior.dataset[list(POINT)].map(lambda v: POINT[v.name] * (1.0 + 1e-9 * v))
    found = gp.loo_pit(draws, model=model, progressbar=False)
    K, N = dense()
    C, pit = (K + N)[: len(X), : len(X)], []
    for i in range(len(X)):
        rest = np.delete(np.arange(len(X)), i)
        weights = np.linalg.solve(C[np.ix_(rest, rest)], C[rest, i])
        sd = np.sqrt(C[i, i] - weights @ C[rest, i])
        pit.append(stats.norm.cdf(Y[i], weights @ Y[rest], sd))
    assert_allclose(found, pit, rtol=1e-7)


def test_the_check_compares_the_same_noise():
    gp, model = fitted(sgp.ExactMarginal)
    found = gp.check(POINT, model=model, rows=20, progressbar=False)
    assert_allclose(found["logp_exact"], found["logp_approx"], rtol=1e-10)
    assert_allclose(found["mean_shift"], 0.0, atol=1e-8)


def test_comparisons_of_other_data_and_with_neighbors_have_it_too():
    """It was left out of both."""
    gp, model = fitted(sgp.ExactMarginal)
    K, N = dense()
    expected = stats.multivariate_normal(cov=(K + N)[:20, :20]).logpdf(Y[:20])
    found = gp.check(POINT, X[:20], Y[:20], model=model, rows=20, progressbar=False)
    assert_allclose(found["logp_exact"], expected, rtol=1e-9)
    with model:
        better = with_neighbors(gp.training, gp.cov_func, len(X), POINT, False, 5)
    expected = stats.multivariate_normal(cov=(K + N)[: len(X), : len(X)]).logpdf(Y)
    assert_allclose(evaluate([better.logp()], POINT, model)[0], expected, rtol=1e-9)


def test_other_data_and_other_noise_are_given():
    gp, model = fitted(sgp.ExactMarginal)
    few = {"X": X[:12], "y": Y[:12]}
    for sigma in (0.3, 0.4**2 * cov.Exponential(1, ls=2.0) + cov.WhiteNoise(0.2)):
        other, one = fitted(sgp.ExactMarginal, **few, sigma=sigma)
        expected = other.predict(NEW, POINT, model=one)
        found = gp.predict(NEW, POINT, given=few | {"sigma": sigma}, model=model)
        assert_allclose(found[0], expected[0], rtol=1e-10)
        assert_allclose(found[1], expected[1], rtol=1e-10)


def test_replaced_data_and_missing_targets():
    with pm.Model() as model:
        inputs, targets = pm.Data("inputs", X), pm.Data("targets", Y)
    with model:
        ell, size, sd = hyperparameters()
        noise = size**2 * cov.Matern32(1, ls=0.4) + cov.WhiteNoise(sd) + cov.WhiteNoise(0.05)
        gp = sgp.ExactMarginal(cov_func=cov.ExpQuad(1, ls=ell))
        gp.marginal_likelihood("y", inputs, targets, noise)
        pm.set_data({"inputs": X[:12], "targets": Y[:12]})
    few, one = fitted(sgp.ExactMarginal, X=X[:12], y=Y[:12])
    assert_allclose(logp_at_point(model)[0], logp_at_point(one)[0], rtol=1e-12)
    expected = few.predict(NEW, POINT, model=one)
    found = gp.predict(NEW, POINT, model=model)
    assert_allclose(found[0], expected[0], rtol=1e-9)
    assert_allclose(found[1], expected[1], rtol=1e-9, atol=1e-12)
    missing = np.where(np.arange(30) < 12, Y, np.nan)
    with pytest.warns(UserWarning, match="18 missing"):
        _, absent = fitted(sgp.ExactMarginal, y=missing)
    assert_allclose(logp_at_point(absent)[0], logp_at_point(one)[0], rtol=1e-12)


def test_without_white_noise_it_is_refused():
    with pytest.raises(ValueError, match=r"add pm.gp.cov.WhiteNoise\(s\)"):
        fitted(sgp.ExactMarginal, sigma=cov.Matern32(1, ls=1.0))


def test_white_noise_in_a_product_is_refused():
    noise = cov.Matern32(1, ls=1.0) * cov.WhiteNoise(0.1) + cov.WhiteNoise(0.1)
    with pytest.raises(ValueError, match="WhiteNoise .* term of its own"):
        fitted(sgp.ExactMarginal, sigma=noise)


def test_other_classes_say_how_it_goes():
    with pytest.raises(TypeError, match="sgp.ExactMarginal takes .*add one with that kernel"):
        fitted(sgp.VecchiaMarginal)


def test_it_is_not_exported(tmp_path):
    gp, model = fitted(sgp.ExactMarginal)
    idata = pm.sample_prior_predictive(4, model=model, random_seed=1)
    with pytest.raises(ValueError, match="noise with a kernel cannot be exported"):
        gp.export(idata.prior, tmp_path / "file.npz", model=model)


def test_columns_and_labels_of_the_noise():
    """Compiled code reads beyond the columns, or its matrix, without a word; so do new runs."""
    numbered = np.column_stack([X, np.arange(30) % 2])
    wrong, point = np.column_stack([X, 1 + np.arange(30) % 2]), {}
    noise = cov.Matern32(2, ls=0.4, active_dims=[0]) * cov.Coregion(
        2, W=np.ones((2, 1)), kappa=np.ones(2), active_dims=[1]
    ) + cov.WhiteNoise(0.2)
    beyond = cov.Matern32(2, ls=0.4, active_dims=[2]) + cov.WhiteNoise(0.2)
    said = " has 2 as output in row 1, column 1: .* from 0 below 2"
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=cov.ExpQuad(2, ls=1.0, active_dims=[0]))
        with pytest.raises(ValueError, match="X" + said):
            gp.marginal_likelihood("bad", wrong, Y, noise)
        with pytest.raises(ValueError, match="the kernel uses column 2, but X has 2 columns"):
            gp.marginal_likelihood("bad", numbered, Y, beyond)
        with pytest.raises(ValueError, match="the kernel uses column 2, but X has 2 columns"):
            sgp.subset_map(gp, numbered, Y, beyond, progressbar=False)
        gp.marginal_likelihood("y", numbered, Y, noise)
        for call in (
            lambda X, **to: gp.predict(X, point, **to),
            lambda X, **to: gp.conditional("f", X, **to),
        ):
            with pytest.raises(ValueError, match="Xnew" + said):
                call(wrong, pred_noise=True)
        with pytest.raises(ValueError, match=r'given\["X"\]' + said):
            gp.predict(numbered, point, given={"X": wrong, "y": Y, "sigma": noise})
    both = (gp.predict(at, point, model=model) for at in (wrong, numbered))
    for found, expected in zip(*both, strict=True):  # of the function, whatever the instrument
        assert_allclose(found, expected, rtol=1e-12)
