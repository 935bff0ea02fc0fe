"""What a sum takes over from its parts."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.testing import check_marginal_logp

RNG = np.random.default_rng(6)
X = RNG.uniform(-1.0, 1.0, (24, 2))
Y = np.sin(3.0 * X[:, 0]) + 0.2 * RNG.standard_normal(24)
COVS = [pm.gp.cov.Matern52(2, ls=0.5), 0.5 * pm.gp.cov.ExpQuad(2, ls=0.8)]
FAST = {"mode": "FAST_COMPILE"}


def density(gp):
    with pm.Model() as model:
        gp.marginal_likelihood("y", X, Y, 0.3)
    return float(model.compile_logp(**FAST)({}))


@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize("more", [0, 1])
def test_rows_of_a_sum_have_the_larger_number_of_neighbors(more):
    """One part asks for all rows, the other for one: with all the sum is the exact GP."""
    parts = [
        sgp.CholQRMarginal(cov_func=cov, n_inducing=4, approx="VIF", block=2, neighbors=count)
        for cov, count in zip(COVS, (24, 1) if more else (1, 24), strict=True)
    ]
    few = [
        sgp.CholQRMarginal(cov_func=cov, n_inducing=4, approx="VIF", block=2, neighbors=1) for cov in COVS
    ]
    exact = density(sgp.ExactMarginal(cov_func=COVS[0] + COVS[1]))
    assert_allclose(density(parts[0] + parts[1]), exact, rtol=1e-6)
    assert abs(density(few[0] + few[1]) - exact) > 1e-3


@pytest.mark.parametrize("at", ["X", "y"])
def test_either_of_the_data_alone_is_guarded(at):
    """Only X, or only y, can be replaced: what was compiled before refuses what was not summarised."""
    with pm.Model() as model:
        data = {"X": X, "y": Y} | {at: pm.Data(at, {"X": X, "y": Y}[at])}
        gp = sgp.SoftKIMarginal(cov_func=COVS[1], inducing=X[::3], approx="DTC")
        gp.marginal_likelihood("y_", data["X"], data["y"], pm.HalfNormal("sigma"))
    assert gp.likelihood_path == "summarized"
    point = model.initial_point(0)
    compiled = model.compile_logp(**FAST)
    before = float(compiled(point))
    new = {"X": 0.9 * X, "y": Y + 1.0}[at]
    pm.set_data({at: new}, model=model)
    (fresh,) = check_marginal_logp(gp, model, name="y_", points=[point], **FAST)
    assert abs(fresh - before) > 0.1
    try:
        found = float(compiled(point))
    except ValueError as error:
        assert "were replaced" in str(error)  # noqa: PT017  either answer is right, the old number is not
    else:
        prior = float(model.compile_logp(vars=model.free_RVs, **FAST)(point))
        assert_allclose(found, fresh + prior, rtol=1e-8)


def test_points_alone_may_be_replaced():
    """Learned points in ``pm.Data``, while X and y stay."""
    points = (X[::3], X[1::3] + 0.05)
    with pm.Model() as model:
        Z = pm.Data("Z", points[0])
        gp = sgp.SoftKIMarginal(cov_func=COVS[1], inducing=Z, approx="DTC")
        gp.marginal_likelihood("y", X, Y, 0.3)
    compiled, found = model.compile_logp(**FAST), []
    for value in points:
        pm.set_data({"Z": value}, model=model)
        found.append(float(compiled({})))
        with pm.Model() as other:
            fresh = sgp.SoftKIMarginal(cov_func=COVS[1], inducing=value, approx="DTC")
            fresh.marginal_likelihood("y", X, Y, 0.3)
        assert_allclose(found[-1], float(other.compile_logp(**FAST)({})), rtol=1e-8)
    assert abs(found[0] - found[1]) > 1e-3
    for bad, words in ((np.full((3, 2), np.nan), "NaN"), (points[0][:, :1], "columns")):
        with pytest.raises(ValueError, match=words):
            sgp.SoftKIMarginal(cov_func=COVS[1], inducing=bad).build(X)
