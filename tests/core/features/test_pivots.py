"""Points by the kernel alone: pivoted Cholesky, ties, rounding, and the values it looks at."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.features import nystrom as module
from pymc_scalable_gp.core.features.nystrom import kernel_columns, pivots

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (150, 2))


class Dense:
    """A matrix that notes which of its columns are asked for."""

    def __init__(self, K):
        self.K, self.asked, self.diag = K, [], np.diag(K).copy()

    def columns(self, rows):
        self.asked.extend(rows)
        return self.K[:, rows]


def kernel(X, ls=0.7):
    """Exponential kernel with different variances, so that no two rows tie."""
    sd = 1.0 + 0.01 * np.arange(len(X)) / len(X)
    distance = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))
    return np.outer(sd, sd) * np.exp(-distance / ls)


def variances(K, rows):
    """Of all rows given the chosen ones, densely."""
    if not len(rows):
        return np.diag(K)
    return np.diag(K - K[:, rows] @ np.linalg.solve(K[np.ix_(rows, rows)], K[rows]))


def test_each_row_has_the_largest_variance_given_those_before():
    K = kernel(X)
    dense = Dense(K)
    rows = pivots(dense, 20, np.random.default_rng(0))
    for k in range(20):
        left = variances(K, rows[:k])
        assert_allclose(left[rows[k]], left.max(), rtol=1e-12)
        assert rows[k] == np.argmax(left)
    assert_array_equal(dense.asked, rows)  # one column per point


def test_what_is_missed_is_near_the_best_possible():
    """No 25 features miss less than the trace beyond the 25 leading eigenvalues."""
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    rows = pivots(Dense(K), 25, np.random.default_rng(0))
    best = np.linalg.eigvalsh(K)[:-25].sum()
    chance = np.random.default_rng(0).permutation(150)[:25]
    assert variances(K, rows).sum() < 6.0 * best
    assert variances(K, chance).sum() > 12.0 * best


def test_the_seed_chooses_among_equal_rows():
    K = np.kron(np.eye(40), np.ones((3, 3)))
    first, again, other = (pivots(Dense(K), 40, np.random.default_rng(s)) for s in (0, 0, 1))
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert_array_equal(np.sort(first // 3), np.arange(40))


def test_rows_that_depend_on_others_are_passed_over():
    K = kernel(X[:40])
    K = K[np.ix_(np.arange(120) % 40, np.arange(120) % 40)]
    rows = pivots(Dense(K), 60, np.random.default_rng(0))
    assert_array_equal(np.sort(rows % 40), np.arange(40))
    assert len(pivots(Dense(np.ones((9, 9))), 5, np.random.default_rng(0))) == 1


def test_a_diagonal_that_differs_from_the_columns_in_rounding():
    """As Matern's: 1 on the diagonal, exp(-1e-6) between copies. No copy is asked for twice."""
    K = kernel(X[:30])[np.ix_(np.arange(3000) % 30, np.arange(3000) % 30)]
    dense = Dense(K)
    dense.diag *= 1.0 + 1e-6
    rows = pivots(dense, 60, np.random.default_rng(0))
    assert_array_equal(np.sort(rows % 30), np.arange(30))
    assert len(dense.asked) <= 31


def test_indefinite_matrices_and_columns_that_are_not_finite():
    K = kernel(X)
    K[5, 70] = K[70, 5] = 3.0
    with pytest.raises(ValueError, match=r"not positive semidefinite: given the other points, row"):
        pivots(Dense(K), 140, np.random.default_rng(0))
    K[:, 70] = np.nan
    K[70, 70] = 2.0
    with pytest.raises(ValueError, match="the kernel is not finite between row 70 and others"):
        pivots(Dense(K), 5, np.random.default_rng(0))


# -- the kernel at a point, and build ---------------------------------------------------------------


def free():
    with pm.Model() as model:
        ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta", 1, initval=2.0)
    return model, eta**2 * pm.gp.cov.Matern32(2, ls=ell)


def test_columns_and_diagonal_at_a_point():
    model, cov = free()
    fixed = 4.0 * pm.gp.cov.Matern32(2, ls=0.3)
    with model:
        found = kernel_columns(cov, X, {"ell": 0.3})  # eta: the model's initial value
    assert_allclose(found.columns([3, 7]), fixed(X, X[[3, 7]]).eval())
    assert_allclose(found.diag, 4.0)
    assert_allclose(kernel_columns(fixed, X).columns([3]), fixed(X, X[[3]]).eval())


def test_build_takes_these_rows():
    model, cov = free()
    gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=12)
    rows = {}
    with model:
        for ell in (0.3, 3.0):
            gp.build(X, point={"ell": ell})
            rows[ell] = gp.indices
            wanted = pivots(kernel_columns(cov, X, {"ell": ell}), 12, np.random.default_rng(0))
            assert_array_equal(gp.indices, wanted)
        gp.build(pm.Data("X", X), point={"ell": 3.0})
        assert_array_equal(gp.indices, rows[3.0])
        gp.build(X, random_seed=1)
        seeded = gp.indices
        gp.build(X)
    assert not np.array_equal(rows[0.3], rows[3.0])
    assert not np.array_equal(gp.indices, seeded)


def test_fewer_independent_rows_than_points_are_told():
    copies = np.repeat(X[:6], 5, axis=0)
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern52(2, ls=1.0), n_inducing=10)
    with pytest.warns(UserWarning, match="only 6 of 10 inducing points are independent") as found:
        assert gp.build(copies) == 6
    assert found[0].filename == __file__
    assert len(np.unique(copies[gp.indices], axis=0)) == 6
    smooth = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=5.0), n_inducing=100)
    with pytest.warns(UserWarning, match="of 100 inducing points are independent"):
        smooth.build(X)
    assert 10 < smooth.rank < 60


def test_of_many_rows_some_are_looked_at(monkeypatch):
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern32(2, ls=0.5), n_inducing=8)
    monkeypatch.setattr(module, "ROWS", 50)
    gp.build(X, random_seed=3)
    seen = np.sort(np.random.default_rng(3).permutation(150)[:50])
    assert set(gp.indices) <= set(seen)
    monkeypatch.setattr(module, "ROWS", 150)
    gp.build(X, random_seed=3)
    assert not set(gp.indices) <= set(seen)
