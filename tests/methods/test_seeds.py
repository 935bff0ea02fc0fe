"""A seed that is given decides what is drawn; one that is not leaves nothing to chance."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_array_equal

import pymc_scalable_gp as sgp

RNG = np.random.default_rng(8)
X = RNG.uniform(-1.0, 1.0, (60, 2))
Y = np.sin(3.0 * X[:, 0]) + 0.3 * RNG.standard_normal(60)
COV = pm.gp.cov.ExpQuad(2, ls=0.5)


def model():
    with pm.Model() as found:
        cov = pm.gp.cov.ExpQuad(2, ls=pm.LogNormal("ell", 0.0, 0.5))
        gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=6)
        gp.build(X, indices=np.arange(6))
        gp.marginal_likelihood("y", X, Y, 0.3)
    return gp, found


def of_check(seed):
    gp, found = model()
    options = {} if seed is None else {"random_seed": seed}
    check = gp.check({"ell": 0.5}, rows=20, neighbors=None, progressbar=False, model=found, **options)
    return check.obs.values


def of_subset_map(seed):
    with pm.Model() as found:
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=pm.LogNormal("ell", 0.0, 0.5)))
    options = {} if seed is None else {"random_seed": seed}
    point = sgp.subset_map(gp, X, Y, 0.3, max_rows=15, progressbar=False, model=found, **options)
    return point["ell"]


def of_probes(seed):
    with pm.Model() as found:
        options = {} if seed is None else {"random_seed": seed}
        gp = sgp.KMCGMarginal(cov_func=COV, n_iter=4, probes=2)
        gp.marginal_likelihood("y", X, Y, 0.3, **options)
    return float(found.compile_logp(mode="FAST_COMPILE")({}))


def of_products(seed):
    with pm.Model() as found:
        options = {} if seed is None else {"random_seed": seed}
        gp = sgp.SKIPMarginal(cov_func=COV, grid_size=20, rank=4, n_iter=5, probes=2)
        gp.marginal_likelihood("y", X, Y, 0.3, **options)
    return float(found.compile_logp(mode="FAST_COMPILE")({}))


def of_centres(seed):
    gp = sgp.SoftKIMarginal(cov_func=COV, inducing=5)
    gp.build(X, **({} if seed is None else {"random_seed": seed}))
    return gp.features(X[:4]).eval()


def of_rows_left_out(seed):
    gp, found = model()
    draws = az.from_dict({"posterior": {"ell": np.linspace(0.4, 0.6, 60).reshape(2, 30)}})
    options = {"num_samples": 30, "random_seed": seed, "progressbar": False, "model": found}
    return gp.loo(draws, **options).elpd


OF = (of_check, of_subset_map, of_probes, of_products, of_centres, of_rows_left_out)
DRAWN = {f.__name__: f for f in OF}


@pytest.mark.filterwarnings("ignore:after|the features|KMCG|hyperparameters|n_iter|points|Estimated")
@pytest.mark.parametrize("drawn", DRAWN)
def test_a_seed_decides_what_is_drawn(drawn):
    draw = DRAWN[drawn]
    assert_array_equal(draw(1), draw(1))
    assert not np.array_equal(draw(1), draw(2))


@pytest.mark.filterwarnings("ignore:after|the features|KMCG|hyperparameters|n_iter|points|Estimated")
@pytest.mark.parametrize("drawn", ["of_check", "of_probes", "of_products", "of_centres"])
def test_without_a_seed_nothing_changes_from_call_to_call(drawn):
    assert_array_equal(DRAWN[drawn](None), DRAWN[drawn](None))
