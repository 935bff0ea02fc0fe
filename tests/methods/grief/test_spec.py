"""Specifications: nodes chosen by default, fits that do not change, what build says."""

import warnings

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.features.eigenfunctions import frozen_basis
from pymc_scalable_gp.core.features.singular import Singular
from pymc_scalable_gp.methods.grief.spec import fit_grief
from pymc_scalable_gp.methods.grief.waves import split_waves
from pymc_scalable_gp.utils.compiled import evaluate


def columns(n, d, seed=0):
    return np.random.default_rng(seed).uniform(0.0, 10.0, (n, d))


def fitted(cov, X, point=None, grid=None, rank=500):
    return fit_grief(cov, split_waves(cov), grid, rank, X, point)


def spacing(grids):
    return np.diff(grids[0].nodes, axis=1).max()


def test_shares_that_are_missing_do_not_depend_on_the_kernels_scale():
    X, cov = columns(200, 2), pm.gp.cov.ExpQuad(2, ls=1.0)
    one, nine = (fitted(scale * cov, X, grid=8, rank=30).missing for scale in (1.0, 9.0))
    assert one.nodes > 0.01
    assert one.rank > 0.01
    assert_allclose(nine, one, rtol=1e-10)


def test_a_column_has_labels_where_no_term_looks_between_them():
    X = np.column_stack([np.repeat(np.arange(4.0), 3), np.linspace(0.0, 1.0, 12)])
    labels = sgp.cov.Hamming(2, ls=1.0, active_dims=[0]) * pm.gp.cov.ExpQuad(2, ls=1.0, active_dims=[1])
    assert_array_equal(fitted(labels, X).input_range.labels[0], np.arange(4))
    assert not fitted(labels + pm.gp.cov.ExpQuad(2, ls=1.0), X).input_range.labels


# -- nodes --------------------------------------------------------------------------------------


def test_nodes_follow_the_lengthscale_at_the_point():
    X = columns(1000, 1)
    with pm.Model(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the features do not explain", category=UserWarning)
        cov = pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ell"))
        found = [fitted(cov, X, {"ell": ell}).grids[0].nodes.size for ell in (3.0, 0.11, 0.01)]
    assert found == [100, 150, 200]


def test_each_column_gets_nodes_of_its_own():
    """Counted by distinct nodes: the shorter of two is padded with its last one."""
    X = np.column_stack([columns(1000, 1)[:, 0], np.arange(1000) % 7])
    cov = pm.gp.cov.ExpQuad(2, ls=[0.1, 5.0])
    nodes = fitted(cov, X, rank=50).grids[0].nodes
    assert [np.unique(row).size for row in nodes] == [168, 7]
    nodes = fitted(cov, X, grid=[30, None], rank=50).grids[0].nodes
    assert [np.unique(row).size for row in nodes] == [30, 7]


@pytest.mark.parametrize(("count", "grid"), [(250, None), (23, 12), (23, [12, 12])])
def test_every_label_is_a_node(count, grid):
    """Between two of them the features of most labels were 0."""
    X = np.column_stack([columns(500, 1)[:, 0], np.arange(500) % count])
    kernel = sgp.cov.PerGroup(pm.gp.cov.ExpQuad, 2, ls=9.0, group_dim=1)
    fit = fitted(kernel, X, grid=grid, rank=4 * count)
    ((_, labels),) = [grid.nodes for grid in fit.grids]
    assert_array_equal(np.unique(labels), np.arange(count))
    assert (fit.features(X[:count]).eval() ** 2).sum(axis=1).min() > 0.9  # of 1


def test_too_many_labels_for_a_node_each():
    X = np.column_stack([columns(2001, 1)[:, 0], np.arange(2001.0)])
    kernel = pm.gp.cov.ExpQuad(2, ls=9.0, active_dims=[0]) * sgp.cov.Hamming(2, ls=1.0, active_dims=[1])
    with pytest.raises(ValueError, match="column 1 holds 2001 categories, which would need a node each"):
        fitted(kernel, X)
    assert fitted(kernel, X, grid=[None, np.arange(5.0)], rank=10).rank == 10


def test_the_rank_follows_a_grid_that_was_not_asked_for():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = fitted(pm.gp.cov.Matern12(1, ls=1.0), np.arange(30.0)[:, None])
    assert fit.rank == 30


def test_a_kernel_that_is_not_finite_at_the_point():
    with pm.Model():
        cov = pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ell"))
        with pytest.raises(ValueError, match=r"not finite at the hyperparameters.*point="):
            fitted(cov, columns(9, 1), {"ell": np.nan}, 5, 5)


# -- fits ---------------------------------------------------------------------------------------


def test_a_fit_never_changes():
    X = columns(40, 2)
    cov = pm.gp.cov.ExpQuad(2, ls=[2.0, 4.0])
    terms = split_waves(cov)
    first = fit_grief(cov, terms, 6, 15, X)
    before = {**vars(first)}
    phi = first.features(X).eval()
    fit_grief(cov, terms, 6, 15, 3.0 * X)
    turned = first.changed(rotation=Singular.of(phi)[0])
    assert turned.rotation is not None
    assert all(vars(first)[name] is value for name, value in before.items())
    assert_array_equal(first.features(X).eval(), phi)
    assert_allclose(turned.features(X).eval(), phi @ turned.rotation.vectors, rtol=1e-10, atol=1e-10)


def test_away_from_the_point_the_features_are_the_best_in_the_fixed_directions():
    """``M (B' M)^-1 M'`` with ``M = K_XU B`` and B the leading columns, by dense algebra."""
    X = columns(50, 1)
    with pm.Model() as model:
        fit = fitted(pm.gp.cov.Matern52(1, ls=pm.LogNormal("ell")), X, {"ell": 2.0}, 20, 8)
    phi = evaluate([fit.features(X)], {"ell": 1.1}, model)[0]
    (grid,) = fit.grids
    (nodes,), (B,) = grid.nodes, grid.basis

    def matern(a, b):
        r = np.sqrt(5.0) * np.abs(a[:, None] - b) / 1.1
        return (1.0 + r + r**2 / 3.0) * np.exp(-r)

    assert B.shape == (20, 8)
    M = matern(X[:, 0], nodes) @ B
    expected = M @ np.linalg.solve(B.T @ matern(nodes, nodes) @ B, M.T)
    assert_allclose(phi @ phi.T, expected, atol=1e-7)


def test_directions_that_are_rounding_are_those_of_a_shorter_lengthscale():
    """At lengthscale 10 on [0, 1] three eigenvectors stand out; the twelfth has its sign changes too."""
    u = np.linspace(0.0, 1.0, 40)
    gram = np.exp(-0.5 * ((u[:, None] - u) / 10.0) ** 2)
    assert np.sum(np.linalg.eigvalsh(gram) > 40 * 1e-10) == 3
    basis = frozen_basis(gram, np.full(40, 1 / 40))
    assert_allclose(basis.T @ basis, np.eye(40) / 40, atol=1e-12)
    changes = [np.sum(np.diff(np.sign(column)) != 0) for column in basis.T[:12]]
    assert changes == list(range(12))


# -- what build says ----------------------------------------------------------------------------


def build(X, ell, fixed=False, **options):
    d = X.shape[1]
    with pm.Model() as model:
        free = pm.LogNormal("ell", np.log(ell), 0.1)
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(d, ls=ell if fixed else free), **options)
        gp.build(X, point={"ell": ell})
    return gp, model


@pytest.mark.parametrize(
    ("d", "ell", "options", "words"),
    [
        (4, 2.0, {"rank": 100}, r"the rank is too low \(raise rank=, now 100\): sigma"),
        (1, 0.2, {"grid": 20, "rank": 20}, r"the grid is too coarse \(give a finer grid=\): sigma"),
        (2, 0.5, {"grid": 12, "rank": 50}, r"the rank is too low .* and .* the grid is too coarse"),
    ],
)
def test_build_says_when_much_variance_is_missing(d, ell, options, words):
    X = columns(300, d)
    with pytest.warns(UserWarning, match=words) as record:
        gp, model = build(X, ell, **options)
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(X, ell, fixed=True, **options)
        build(X, ell, fixed=True, rotate=True, **options)
    share = float(str(record[0].message).split("%")[0].split()[-1]) / 100.0
    value = evaluate([gp.features(X)], {"ell": ell}, model)[0]
    assert_allclose(share, 1.0 - np.mean((value**2).sum(axis=1)), atol=0.006)


# -- defaults against the exact GP --------------------------------------------------------------


def sine(rng):
    X = np.linspace(0.0, 10.0, 200)[:, None]
    return X, np.sin(4.0 * X[:, 0]), 0.2


def ties(rng):
    X = np.round(rng.uniform(0.0, 5.0, (150, 1)), 1)
    return X, np.sin(3.0 * X[:, 0]) * X[:, 0] / 3.0, 0.3


def step(rng):
    X = rng.uniform(0.0, 10.0, (250, 1))
    return X, np.sign(np.sin(X[:, 0])), 0.3


def surface(rng):
    X = rng.uniform(-3.0, 3.0, (300, 2))
    return X, np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]), 0.2


def gauges(rng):
    """Two inputs and short lengthscales, as of rain: a draw of about 60 waves."""
    X = rng.uniform(0.0, 10.0, (500, 2))
    waves = rng.standard_normal((60, 2)) @ X.T
    return X, np.sqrt(2 / 60) * np.cos(waves + rng.uniform(0, 6.3, (60, 1))).sum(axis=0), 0.5


def friedman(rng):
    X = rng.uniform(0.0, 1.0, (400, 3))
    return X, 2.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 4.0 * (X[:, 2] - 0.5) ** 2, 0.2


def best(X, y, make):
    """Mean at the rows and sigma at the best hyperparameters, with nothing but ``cov_func=``."""
    d = X.shape[1]
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 2, 2, shape=d)
        eta, sigma = pm.HalfNormal("eta", 2), pm.HalfNormal("sigma", 1)
        gp = make(cov_func=eta**2 * pm.gp.cov.ExpQuad(d, ls=ell))
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        tree = pm.find_MAP(
            initvals={"ell": np.full(d, 0.5), "sigma": 0.3}, jitter=False, progressbar=False,
            return_inferencedata=True, compile_kwargs={"mode": "FAST_COMPILE"},
        )  # fmt: skip
        point = {name: v.values[0, 0] for name, v in tree.posterior.data_vars.items()}
        mean, _ = gp.predict(X, point=point, diag=True, model=model)
    return mean, float(point["sigma"])


@pytest.mark.parametrize(
    "data",
    [
        ties,
        pytest.param(sine, marks=pytest.mark.slow),
        pytest.param(step, marks=pytest.mark.slow),
        pytest.param(gauges, marks=pytest.mark.slow),
        pytest.param(surface, marks=pytest.mark.slow),
        pytest.param(friedman, marks=pytest.mark.slow),
    ],
)
def test_defaults_come_close_to_the_exact_gp(data):
    """RMSE of the function within 5%, sigma within 10%, of `pm.gp.Marginal`'s best point."""
    rng = np.random.default_rng(3)
    X, f, noise = data(rng)
    y = f + noise * rng.standard_normal(f.size)
    exact, exact_sigma = best(X, y, pm.gp.Marginal)
    found, sigma = best(X, y, sgp.GriefGP)
    rmse, target = (np.sqrt(np.mean((mean - f) ** 2)) for mean in (found, exact))
    assert abs(exact_sigma / noise - 1.0) < 0.3  # both found the function, not the noise
    assert_allclose(rmse, target, rtol=0.05)
    assert_allclose(sigma, exact_sigma, rtol=0.1)
