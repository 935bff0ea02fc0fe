"""Given points: data that change in number, copies, and sums, which have none of their own."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax

import pymc_scalable_gp as sgp

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(40)
COV = pm.gp.cov.ExpQuad(2, ls=0.8)


def likelihood(name, **options):
    """Model whose points are pm.Data, given to the class or to the likelihood."""
    with pm.Model() as model:
        Z = pm.Data("Z", X[:5])
        sigma = pm.HalfNormal("sigma", 1)
        cov = pm.HalfNormal("eta") ** 2 * COV
        inducing = Z if name == "inducing" else 3
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=inducing, **options)
        given = {"Xu": Z} if name == "Xu" else {}
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma, **given)
    return gp, model


@pytest.mark.parametrize("name", ["inducing", "Xu"])
@pytest.mark.parametrize("mode", ["FAST_COMPILE", pytest.param("NUMBA", marks=pytest.mark.slow)])
def test_data_points_may_move_but_not_change_in_number(name, mode):
    _, model = likelihood(name)
    logp = model.compile_logp(mode=mode)
    start = model.initial_point()
    with model:
        before = logp(start)
        pm.set_data({"Z": X[5:10]})
        moved = logp(start)
        assert abs(moved - before) > 1e-3
        for count in (4, 7):
            pm.set_data({"Z": X[:count]})
            with pytest.raises(ValueError, match=f"{name} had 5 points when the GP was built"):
                logp(start)
        pm.set_data({"Z": X[:5]})
        assert_allclose(logp(start), before)


def test_copies_are_told_at_the_callers_line():
    with pytest.warns(UserWarning, match="1 of the 4 points in inducing are duplicates") as found:
        sgp.SoftKIMarginal(cov_func=COV, inducing=X[[0, 1, 2, 0]])
    assert found[0].filename == __file__


def test_a_sum_has_no_points_of_its_own():
    one, two = (sgp.SoftKIMarginal(cov_func=COV, inducing=n) for n in (4, 6))
    with pytest.raises(AttributeError, match="take that of each part"):
        _ = (one + two).inducing


CODES = np.column_stack([X[:, 0], np.arange(40) % 3])
OUTPUTS = pm.gp.cov.ExpQuad(2, ls=0.8, active_dims=[0]) * pm.gp.cov.Coregion(
    2, W=np.zeros((3, 1)), kappa=np.ones(3), active_dims=[1]
)


GROUPS = sgp.cov.PerGroup(pm.gp.cov.Matern52, 2, ls=0.8, group_dim=1)


@pytest.mark.parametrize("kernel", [OUTPUTS, COV * sgp.cov.Hamming(2, ls=1.0, active_dims=[1]), GROUPS])
def test_points_have_categories_that_the_rows_have(kernel):
    """Centres lay between them, and training moved them: Coregion takes .94 as output 0."""
    gp = sgp.SoftKIMarginal(cov_func=kernel, inducing=7)
    gp.build(CODES)
    assert np.isin(gp.inducing.eval()[:, 1], [0.0, 1.0, 2.0]).all()
    with pm.Model():
        fit = sgp.fit_inducing(
            gp, CODES, Y, 0.1, epochs=2, progressbar=False, random_seed=1, mode="FAST_COMPILE"
        )
    assert np.isin(fit.Z[:, 1], [0.0, 1.0, 2.0]).all()
    assert not np.isin(fit.Z[:, 0], CODES[:, 0]).any()


@pytest.mark.parametrize("name", ["inducing", "Xu"])
def test_points_that_are_no_rows_of_the_kernel_are_refused(name):
    points = np.add(CODES[:5], [0.0, 0.3])
    given = {"inducing": points} if name == "inducing" else {}
    gp = sgp.SoftKIMarginal(cov_func=OUTPUTS, **given)
    with pytest.raises(ValueError, match=f"{name} has 0.3 as output in row 0, column 1"):
        gp.build(CODES, *([points] if name == "Xu" else []))


CORRELATED = pm.gp.cov.ExpQuad(2, ls=0.8, active_dims=[0]) * pm.gp.cov.Coregion(
    2, W=np.array([[1.0], [0.9], [-0.5]]), kappa=np.full(3, 0.1), active_dims=[1]
)


@pytest.mark.parametrize("kernel", [OUTPUTS, CORRELATED])
def test_a_row_takes_the_points_of_its_own_label(kernel):
    """Independent outputs are independent; others covary by the kernel of the points."""
    gp = sgp.SoftKIMarginal(cov_func=kernel, inducing=9, temperature=0.5)
    gp.build(CODES)
    Z = gp.inducing.eval()
    distance = np.where(CODES[:, 1:] == Z[:, 1], np.abs(CODES[:, :1] - Z[:, 0]), np.inf)
    weights, K = softmax(-distance / 0.5, axis=1), kernel(Z).eval()
    expected = weights @ (K + 1e-6 * np.diag(np.diag(K))) @ weights.T
    phi = gp.features(CODES).eval()
    assert_allclose(phi @ phi.T, expected, atol=1e-12)


@pytest.mark.parametrize("kernel", [OUTPUTS, GROUPS])
def test_labels_are_apart_whatever_the_units_of_the_inputs(kernel):
    """In seconds the points of other labels were the nearest."""
    rows = CODES * [1e8, 1.0]
    gp = sgp.SoftKIMarginal(cov_func=kernel, inducing=9, temperature=3e7)
    gp.build(rows)
    same = rows[:, 1:] == gp.inducing.eval()[:, 1]
    weights = gp.feature_map.basis(pt.constant(rows)).eval()
    assert_allclose(weights[same].sum(), len(rows))
    assert gp.feature_map.spacing > 1e6


TWO = np.column_stack([X[:, 0], np.arange(40) % 2, np.arange(40) // 2 % 2])


def test_points_of_inputs_that_are_labels_alone():
    X = np.repeat(np.arange(4.0), 3)[:, None]
    gp = sgp.SoftKIMarginal(cov_func=sgp.cov.Hamming(1, ls=1.0), inducing=4)
    gp.build(X)
    assert_array_equal(gp.inducing.eval(), np.arange(4.0)[:, None])


def test_rows_that_differ_in_one_of_several_labels_share_points():
    """A kernel that counts differences compares them."""
    kernel = pm.gp.cov.ExpQuad(3, ls=0.8, active_dims=[0]) * sgp.cov.Hamming(3, 2.0, active_dims=[1, 2])
    gp = sgp.SoftKIMarginal(cov_func=kernel, inducing=TWO[:6])
    gp.build(TWO)
    distance = np.linalg.norm(TWO[:, None] - TWO[:6], axis=2)
    found = gp.feature_map.basis(pt.constant(TWO)).eval()
    assert_allclose(found, softmax(-distance, axis=1), rtol=1e-10)


def test_labels_without_a_point_are_told():
    labels = [sgp.cov.Hamming(3, 1.0, active_dims=[j]) for j in (1, 2)]
    kernel = pm.gp.cov.ExpQuad(3, ls=0.8, active_dims=[0]) * labels[0] * labels[1]
    with pytest.warns(UserWarning, match="no point lies at 1, 1 of column 1, 2: rows there"):
        sgp.SoftKIMarginal(cov_func=kernel, inducing=TWO[TWO[:, 1:].min(axis=1) == 0.0]).build(TWO)
    sgp.SoftKIMarginal(cov_func=kernel, inducing=TWO[:4]).build(TWO)


def test_centres_are_seen_within_groups_whose_codes_are_far_apart():
    """To k-means all rows of a group were one point."""
    gp = sgp.SoftKIMarginal(cov_func=GROUPS, inducing=10)
    gp.build(CODES * [1.0, 5000.0])
    points = gp.inducing.eval()
    assert len(points) == 10
    assert_array_equal(np.unique(points[:, 1]), [0.0, 5000.0, 10000.0])
