"""Independent functions of groups: kernels, densities in every class, neighbours, new groups."""

from contextlib import nullcontext

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from marks import often
from numpy.testing import assert_allclose, assert_array_equal
from pytensor.graph.traversal import ancestors
from scipy.stats import multivariate_normal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.features.residual import fused_kernel
from pymc_scalable_gp.core.vecchia.neighbors import Metric, order_rows
from pymc_scalable_gp.cov.kernels import kernel_diag, kernel_matrix
from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.utils.compiled import IN_PYTHON

c = pm.gp.cov
RNG = np.random.default_rng(0)
N, G = 24, 3
X = np.column_stack([RNG.uniform(0, 4, N), np.arange(N) % G])
Y = np.sin(X[:, 0] + X[:, 1]) + 0.2 * RNG.standard_normal(N)
LS, SCALE = np.array([0.6, 1.1, 2.3]), np.array([0.8, 1.6, 0.5])
FORMS = {
    "Matern12": ({}, lambda r: np.exp(-r)),
    "Exponential": ({}, lambda r: np.exp(-r / 2)),
    "ExpQuad": ({}, lambda r: np.exp(-0.5 * r**2)),
    "Matern32": ({}, lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r)),
    "Matern52": ({}, lambda r: (1 + 5**0.5 * r + 5 / 3 * r**2) * np.exp(-(5**0.5) * r)),
    "RatQuad": ({"alpha": 0.7}, lambda r: (1 + 0.5 * r**2 / 0.7) ** -0.7),
}


def dense(A, B, kind, ls, scale, columns=slice(0, 1), group=1):
    """Entry by entry."""
    out = np.zeros((len(A), len(B)))
    ls, scale = (v * np.ones(G) for v in (ls, scale))
    for i, a in enumerate(A):
        for j, b in enumerate(B):
            if a[group] == b[group]:
                g = int(a[group])
                r = np.linalg.norm(a[columns] - b[columns]) / ls[g]
                out[i, j] = scale[g] ** 2 * FORMS[kind][1](r)
    return out


def make(kind, ls, scale, d=2, group_dim=1, **kwargs):
    kernel, params = getattr(c, kind), FORMS[kind][0]
    return sgp.cov.PerGroup(kernel, d, ls=ls, scale=scale, group_dim=group_dim, **params, **kwargs)


@pytest.mark.parametrize(
    ("kind", "ls", "scale"),
    [("Matern52", 0.7, 1.3), ("ExpQuad", 0.7, SCALE), *((kind, LS, SCALE) for kind in FORMS)],
)
def test_values(kind, ls, scale):
    cov, expected = make(kind, ls, scale), dense(X, X, kind, ls, scale)
    graphs = [kernel_matrix(cov, X), kernel_matrix(cov, X[:5], X), kernel_diag(cov, X),
              cov(X), cov(X[:5], X)]  # fmt: skip
    whole, part, diag, own, own_part = pytensor.function([], graphs, mode=IN_PYTHON)()
    assert_allclose(whole, expected, rtol=1e-12)
    assert_allclose(part, expected[:5], rtol=1e-12)
    assert_allclose(diag, np.diag(expected), rtol=1e-15)
    assert_allclose(own, expected, rtol=3e-6)  # 1e-12 below PyMC's roots
    assert_allclose(own_part, expected[:5], rtol=3e-6)
    assert (whole[X[:, 1][:, None] != X[:, 1]] == 0.0).all()


@pytest.mark.parametrize("dtype", ["int64", "uint8"])
@pytest.mark.parametrize(("ls", "scale"), [(0.7, 1.3), (LS, SCALE)])
def test_whole_numbers_in_any_form(dtype, ls, scale):
    """Years and groups as integers; unsigned ones have no negative differences."""
    rows, cov = np.array([[3, 0], [1, 0], [2, 1]]), make("Matern12", ls, scale)
    expected, typed = dense(rows, rows, "Matern12", ls, scale), rows.astype(dtype)
    whole, part, diag = pytensor.function(
        [], [cov(typed), cov(typed[1:], typed), cov(typed, diag=True)], mode=IN_PYTHON
    )()
    assert_allclose(whole, expected, rtol=3e-6)
    assert_allclose(part, expected[1:], rtol=3e-6)
    assert_allclose(diag, np.diag(expected), rtol=1e-15)


@pytest.mark.parametrize("offset", [2020.0, 1.6e9])
def test_an_offset_changes_nothing(offset):
    """Neither a value nor a slope in the lengthscales."""
    grid = np.column_stack([np.round(X[:, 0] * 1024) / 1024, X[:, 1]])
    ls, weights = pt.dvector("ls"), RNG.standard_normal((N, N))
    cov, found = make("Matern52", ls, SCALE), []
    for rows in (grid, grid + np.array([offset, 0.0])):
        K = kernel_matrix(cov, rows), kernel_matrix(cov, rows[4:], rows)
        outputs = [*K, pt.grad((K[0] * weights).sum(), ls)]
        found.append(pytensor.function([ls], outputs, mode=IN_PYTHON)(LS))
    for a, b in zip(*found, strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    assert_allclose(found[0][1], found[0][0][4:], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", ["Matern32", "RatQuad"])
@pytest.mark.parametrize("wide", [3, 70])
def test_more_columns_in_any_order(kind, wide):
    """With a column that is not used; so many that distances are products, which far groups would spoil."""
    other = np.insert(RNG.standard_normal((N, wide)), 1, 700 + np.arange(N) % G, axis=1)
    used = [k for k in range(wide, -1, -1) if k not in (1, 2)]
    groups = other[:, 1].astype(int)
    same = groups[:, None] == groups
    for ls in (1.2, np.linspace(0.5, 2.0, 703)):
        cov = make(kind, ls, 0.9, wide + 1, active_dims=used)
        r = np.linalg.norm(other[:, None, used] - other[:, used], axis=2)
        r = r / (ls if np.ndim(ls) == 0 else ls[groups][:, None])
        expected = 0.81 * same * FORMS[kind][1](r)
        found = kernel_matrix(cov, other).eval(mode=IN_PYTHON)
        assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def hierarchy(ls, scale, eta):
    return eta**2 * c.Matern32(2, ls=1.5, active_dims=[0]) + make("Matern52", ls, scale)


def covariance(A, B, ls, scale, eta):
    r = np.abs(A[:, :1] - B[:, 0]) / 1.5
    return eta**2 * FORMS["Matern32"][1](r) + dense(A, B, "Matern52", ls, scale)


ALL = {"approx": "VIF", "neighbors": N, "block": 4}
CLASSES = {
    "exact": lambda k: sgp.ExactMarginal(cov_func=k),
    "neighbors": lambda k: sgp.VecchiaMarginal(cov_func=k, n_inducing=5, neighbors=N, block=4),
    "CholQR": lambda k: sgp.CholQRMarginal(cov_func=k, n_inducing=5, **ALL),
    "SoftKI": lambda k: sgp.SoftKIMarginal(cov_func=k, inducing=9, **ALL),
    "GRIEF": lambda k: sgp.GriefGP(cov_func=k, grid=5, rank=6, **ALL),
    "SKIP": lambda k: sgp.SKIPMarginal(cov_func=k, grid_size=20, rank=5, **ALL),
}
POINT = {"ls": LS, "scale": SCALE, "eta": np.array(0.7)}


def density(name, alone, vectors=True):
    """GP, model, log density and its gradient, and the covariance at any values."""
    shape = {"shape": G} if vectors else {}
    with pm.Model() as model:
        ls, scale = pm.LogNormal("ls", **shape), pm.LogNormal("scale", **shape)
        eta = pm.LogNormal("eta")
        kernel = make("ExpQuad", ls, eta * scale) if alone else hierarchy(ls, scale, eta)
        gp = CLASSES[name](kernel)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
    values = [model.rvs_to_values[v] for v in (ls, scale, eta)]
    outputs = [model.datalogp, *pt.grad(model.datalogp, values)]
    function = model.compile_fn(outputs, mode=IN_PYTHON, inputs=values, point_fn=False)

    def cov(A, B, logs):
        ls, scale, eta = map(np.exp, logs)
        if alone:
            return dense(A, B, "ExpQuad", ls, eta * scale)
        return covariance(A, B, ls, scale, eta)

    return gp, model, function, cov


@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize(
    ("name", "alone", "vectors"),
    [
        ("exact", False, True),
        ("neighbors", False, True),
        ("neighbors", True, True),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("exact", True, True), ("neighbors", True, False), ("CholQR", False, True),
                ("SoftKI", True, True), ("GRIEF", True, False), ("GRIEF", True, True), ("SKIP", True, True),
                ("SKIP", True, False),
            ]
        ),
    ],
)  # fmt: skip
def test_density_gradient_and_prediction(name, alone, vectors):
    """With all rows as neighbours every class is exact."""
    gp, model, function, cov = density(name, alone, vectors)
    point = POINT if vectors else POINT | {"ls": np.array(0.9), "scale": np.array(1.2)}
    logs = [np.log(v) for v in point.values()]

    def value(*logs):
        return multivariate_normal(cov=cov(X, X, logs) + 0.09 * np.eye(N)).logpdf(Y)

    logp, *slopes = function(*logs)
    assert_allclose(logp, value(*logs), rtol=1e-8 if name == "exact" else 1e-4)
    steps = [RNG.standard_normal(np.shape(v)) for v in logs]
    sides = [value(*(v + s * 1e-5 * step for v, step in zip(logs, steps, strict=True)))
             for s in (1, -1)]  # fmt: skip
    slope = sum((a * b).sum() for a, b in zip(slopes, steps, strict=True))
    tolerance = 1e-6 if name == "exact" else 1e-3
    assert_allclose(slope, (sides[0] - sides[1]) / 2e-5, rtol=tolerance, atol=tolerance)
    new = np.array([[1.0, 0.0], [3.0, 2.0]])
    mean, _ = gp.predict(new, point=point, diag=True, model=model)
    K = cov(X, X, logs) + 0.09 * np.eye(N)
    assert_allclose(mean, cov(new, X, logs) @ np.linalg.solve(K, Y), rtol=1e-3, atol=1e-4)


def test_the_density_is_that_of_eleven_gps():
    """A function for each of ten groups around a common one, as additive GPs of PyMC on 300 rows."""
    rows, count = 300, 10
    rng = np.random.default_rng(1)
    data = np.column_stack([rng.uniform(0, 10, rows), np.arange(rows) % count])
    y = np.sin(data[:, 0]) + 0.3 * rng.standard_normal(rows)
    ls, scale = rng.uniform(0.5, 2.0, (2, count))
    common = 1.3**2 * c.Matern52(2, ls=2.0, active_dims=[0])
    gps = [pm.gp.Marginal(cov_func=common)]
    for g in range(count):
        own = c.Coregion(2, W=np.zeros((count, 1)), kappa=np.eye(count)[g], active_dims=[1])
        kernel = scale[g] ** 2 * c.Matern52(2, ls=ls[g], active_dims=[0]) * own
        gps.append(pm.gp.Marginal(cov_func=kernel))
    total = gps[0]
    for gp in gps[1:]:
        total = total + gp
    kernel = common + sgp.cov.PerGroup(c.Matern52, 2, ls=ls, scale=scale, group_dim=1)
    found = []
    for gp, more in ((total, {"jitter": 0.0}), (sgp.ExactMarginal(cov_func=kernel), {})):
        with pm.Model() as model:
            gp.marginal_likelihood("y", X=data, y=y, sigma=0.3, **more)
        found.append(model.compile_logp(mode=IN_PYTHON)({}))
    assert_allclose(found[1], found[0], rtol=1e-8)


def test_what_is_compiled_does_not_depend_on_the_groups():
    def nodes(count):
        data = np.column_stack([np.linspace(0, 1, 60), np.arange(60) % count])
        with pm.Model() as model:
            ls = pm.LogNormal("ls", shape=count)
            gp = sgp.VecchiaMarginal(cov_func=make("Matern52", ls, 1.0), n_inducing=3, neighbors=4)
            gp.marginal_likelihood("y", X=data, y=data[:, 0], sigma=0.1)
        return len(list(ancestors([model.logp(), model.dlogp()])))

    assert nodes(2) == nodes(20)


@pytest.mark.parametrize(("ls", "scale"), [(0.7, SCALE), (LS, 1.3), (LS, SCALE)])
def test_products_for_grids(ls, scale):
    """A product of kernels on one column each for each group, or for all."""
    total = 0.0
    for term in product_terms(0.5 * make("Matern32", ls, scale)):
        columns = pt.constant(X.T[term.dims])
        total += term.scale * term.gram(columns, columns).prod(axis=0)
    assert len(product_terms(make("Matern32", ls, scale))) == (1 if np.ndim(ls) == 0 else G)
    expected = 0.5 * dense(X, X, "Matern32", ls, scale)
    assert_allclose(total.eval(mode=IN_PYTHON), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("scale", ["fixed", "random"])
def test_a_group_has_no_features_of_the_others(scale):
    """Two thirds of SKIP's were 0, in all rows and whatever the scales."""
    with pm.Model():
        scale = SCALE if scale == "fixed" else pm.HalfNormal("scale", shape=G)
        gp = sgp.SKIPMarginal(cov_func=make("Matern52", LS, scale), grid_size=20, rank=8)
        gp.build(X)
    assert gp.rank == G * 8


def test_kernels_that_vanish_are_fused():
    """So that blocks of neighbours are computed in one pass."""
    rows = pt.constant(X)
    assert fused_kernel(make("Matern52", 0.7, 1.3), rows) is not None
    assert fused_kernel(make("Matern52", pt.dvector(), SCALE), rows).moving
    assert fused_kernel(make("RatQuad", 0.7, 1.3), rows) is None


def test_neighbors_are_rows_of_the_same_group_first():
    rng = np.random.default_rng(2)
    data = np.column_stack([rng.uniform(0, 100, 600), rng.integers(0, 6, 600)])
    metric = Metric(hierarchy(np.array([0.2, 1, 2, 3, 4, 5]), 1.0, 1.0), data)
    ordering = order_rows(data, metric, block=1, neighbors=5, pred_neighbors=5, progressbar=False)
    ordered = data[ordering.order]
    for i in range(1, 600):
        own = (ordered[:i, 1] == ordered[i, 1]).sum()
        near = ordering.neighbors[i][ordering.neighbors[i] >= 0]
        assert (ordered[near, 1] == ordered[i, 1]).sum() == min(own, 5)
    found = ordering.nearest(np.array([[50.0, 4.0]]))[0]
    near = np.flatnonzero(ordered[:, 1] == 4)
    near = near[np.argsort(np.abs(ordered[near, 0] - 50.0))[:5]]
    assert_array_equal(np.sort(found), np.sort(near))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: make("Matern52", np.ones((2, 2)), 1.0), ValueError, "ls must be a scalar or have"),
        (lambda: make("Matern52", -1.0, 1.0), ValueError, "ls must be positive"),
        (lambda: make("Matern52", 1.0, [1.0, 0.0]), ValueError, "scale must be positive"),
        (lambda: make("Matern52", LS, [1.0, 2.0]), ValueError, "ls has 3 entries and scale 2"),
        (lambda: make("Matern52", LS, 1.0, d=1, group_dim=0), ValueError, "a column of groups"),
        (lambda: make("Matern52", LS, 1.0, group_dim=2), ValueError, "a column of groups"),
        (lambda: make("Matern52", LS, 1.0, alpha=1.0), TypeError, "takes no alpha="),
        (lambda: sgp.cov.PerGroup(c.Cosine, 2, ls=1.0, group_dim=1), ValueError, "does not fall"),
        (lambda: sgp.cov.PerGroup(c.Linear, 2, ls=1.0, group_dim=1), TypeError, "stationary"),
        (lambda: sgp.cov.PerGroup(c.Matern52(2, ls=1.0), 2, ls=1.0, group_dim=1), TypeError, "class"),
    ],
)  # fmt: skip
def test_wrong_kernels(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(("code", "words"), [(3.0, "entries for 3 groups"), (0.5, "whole numbers"),
                                             (-1.0, "whole numbers")])  # fmt: skip
def test_wrong_codes_are_refused_and_never_silent(code, words):
    cov, bad = make("Matern52", LS, 1.0), X + 0.0
    bad[4, 1] = code
    with pm.Model(), pytest.raises(ValueError, match=f"column 1 of X holds groups.*{words}"):
        sgp.VecchiaMarginal(cov_func=cov).marginal_likelihood("y", X=bad, y=Y, sigma=1.0)
    gp = sgp.ExactMarginal(cov_func=cov)
    with pm.Model() as model:
        gp.marginal_likelihood("y", X=X, y=Y, sigma=1.0)
    with model, pytest.raises(ValueError, match="column 1 of Xnew"):
        gp.predict(bad, point={})
    for K in (kernel_matrix(cov, bad), cov(bad), kernel_diag(cov, bad)):
        assert np.isnan(K.eval(mode=IN_PYTHON)[4]).all()


def test_a_new_group_has_the_prior_where_groups_share_their_parameters():
    gp = sgp.VecchiaMarginal(cov_func=make("Matern52", 0.8, 1.5), n_inducing=4, neighbors=5)
    with pm.Model() as model:
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.1)
    mean, var = gp.predict(np.array([[1.0, 7.0]]), point={}, diag=True, model=model)
    assert_allclose(mean, 0.0, atol=1e-12)
    assert_allclose(var, 2.25, rtol=1e-6)


LOW_RANK = {
    "GRIEF": lambda k: sgp.GriefGP(cov_func=k, rank=40),
    "GRIEF, DTC": lambda k: sgp.GriefGP(cov_func=k, rank=40, approx="DTC"),
    "CholQR": lambda k: sgp.CholQRMarginal(cov_func=k, n_inducing=12),
    "SoftKI": lambda k: sgp.SoftKIMarginal(cov_func=k, inducing=12, temperature=0.3),
    "SoftKI, FITC": lambda k: sgp.SoftKIMarginal(cov_func=k, inducing=12, temperature=0.3, approx="FITC"),
}


@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize("name", often(LOW_RANK, "GRIEF", "CholQR", "SoftKI"))
@pytest.mark.parametrize("group", [1.0, 7.0])
def test_two_rows_of_a_new_group_are_warned_of_where_they_are_predicted_jointly(name, group):
    """Each has the prior, whose variance is its own where no feature holds the group: no other warning."""
    known = X[X[:, 1] != 1.0]
    gp = LOW_RANK[name](make("Matern52", 0.8, 1.5))
    with pm.Model() as model:
        gp.marginal_likelihood("y", X=known, y=Y[X[:, 1] != 1.0], sigma=0.3)
    new = np.array([[1.0, group], [1.1, group], [1.0, 0.0], [1.1, 0.0]])
    mean, var = gp.predict(new, point={}, diag=True, model=model)
    assert_allclose(mean[:2], 0.0, atol=1e-9)
    assert_allclose(var[:2], 2.25, rtol=1e-9)
    gp.predict(new[1:], point={}, model=model)
    gp.predict(new, point={}, model=model, joint=False)
    with pytest.warns(UserWarning, match=f"several rows with {group:g} in column 1.*100% of the prior"):
        _, cov = gp.predict(new, point={}, model=model)
    assert_allclose(cov[0, 1], 0.0, atol=1e-9)
    with model, pytest.warns(UserWarning, match="several rows"):
        gp.conditional("f", new)
    # As the warning says: the features then hold the group.
    again = LOW_RANK[name](make("Matern52", 0.8, 1.5))
    again.build(np.concatenate([known, new, new]))
    with pm.Model() as model:
        again.marginal_likelihood("y", X=known, y=Y[X[:, 1] != 1.0], sigma=0.3)
    _, cov = again.predict(new, point={}, model=model)
    assert cov[0, 1] > 2.1


def test_draws_of_two_rows_of_a_new_group_are_warned_of():
    gp = sgp.GriefGP(cov_func=make("Matern52", 0.8, 1.5), rank=40)
    with pm.Model() as model:
        gp.marginal_likelihood("y", X=X, y=Y, sigma=pm.HalfNormal("sigma"))
    idata = xr.Dataset({"sigma": (("chain", "draw"), [[0.3, 0.4]])})
    new = np.array([[1.0, 7.0], [1.1, 7.0]])
    options = {"model": model, "progressbar": False, "random_seed": 0}
    gp.predict_posterior(new, idata, **options)
    gp.predict_posterior(new[:1], idata, draws=True, **options)
    with pytest.warns(UserWarning, match="several rows with 7 in column 1"):
        gp.predict_posterior(new, idata, draws=True, **options)


def test_skip_has_the_groups_of_its_build():
    """It refuses others, and says what makes room for them."""
    new, refusal = np.array([[1.0, 7.0], [1.1, 7.0]]), r"column 1 holds 7, .*gp.build\(np.concatenate"
    for inputs in (X, np.concatenate([X, new])):
        gp = sgp.SKIPMarginal(cov_func=make("Matern52", 0.8, 1.5), grid_size=20, rank=8)
        gp.build(inputs)
        with pm.Model() as model:
            gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
        with nullcontext() if len(inputs) > N else pytest.raises(ValueError, match=refusal):
            mean, cov = gp.predict(new, point={}, model=model)
    assert_allclose(mean, 0.0, atol=1e-9)
    assert cov[0, 1] > 2.1


def test_a_new_group_has_the_common_function_between_points():
    """Where every row is a point of SoftKI, it is the exact process, at a new group too."""
    kernel, found = hierarchy(0.8, 1.5, 0.7), []
    options = {"inducing": X, "temperature": 1e-3}
    for gp in (sgp.ExactMarginal(cov_func=kernel), sgp.SoftKIMarginal(cov_func=kernel, **options)):
        with pm.Model() as model:
            gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
        found.append(gp.predict(np.array([[1.0, 7.0], [2.0, 0.0]]), point={}, diag=True, model=model))
    assert_allclose(found[1][0][0], found[0][0][0], rtol=1e-4)  # the jitter of points that are close
    assert_allclose(found[1][1][0], found[0][1][0], rtol=1e-4)


def test_a_group_without_a_function_of_its_own():
    """Scales of 0: gradients divided by them."""
    found = []
    for kind, options in (
        (sgp.ExactMarginal, {}),
        (sgp.VecchiaMarginal, {"n_inducing": 0, "neighbors": N}),
    ):
        with pm.Model() as model:
            eta = pm.Flat("eta", shape=3)
            own = sgp.cov.PerGroup(c.Matern52, 2, ls=0.7, scale=eta, group_dim=1)
            gp = kind(cov_func=c.Matern52(2, ls=1.0, active_dims=[0]) + own, **options)
            gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
        found.append(model.compile_dlogp(mode="FAST_COMPILE")({"eta": np.array([0.0, 0.8, 0.0])}))
    assert_allclose(found[1], found[0], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["GRIEF", pytest.param("SKIP", marks=pytest.mark.slow)])
def test_named_dims_do_as_a_shape_does(kind):
    """A vector's length is that of the dimension at present, which its type does not say."""

    def logp(**named):
        with pm.Model(coords={"group": range(G)}) as model:
            kernel = make("Matern52", pm.LogNormal("ls", **named), pm.LogNormal("scale", **named))
            CLASSES[kind](kernel).marginal_likelihood("y", X=X, y=Y, sigma=0.3)
        return model.compile_logp(mode="FAST_COMPILE")({"ls_log__": LS, "scale_log__": SCALE})

    assert_allclose(logp(dims="group"), logp(shape=G), rtol=1e-10)


def test_named_dims_are_counted():
    bad = X + np.array([0.0, 1.0])
    with pm.Model(coords={"group": range(G)}) as model:
        ls = pm.LogNormal("ls", dims="group")
        gp = sgp.ExactMarginal(cov_func=make("Matern52", ls, 1.0))
        with pytest.raises(ValueError, match="entries for 3 groups"):
            gp.marginal_likelihood("y", X=bad, y=Y, sigma=0.3)
        with pytest.raises(ValueError, match="ls has 3 entries and scale 2"):
            make("Matern52", ls, [1.0, 2.0])
        model.set_dim("group", G + 1, range(G + 1))  # one group more, from here on
        gp.marginal_likelihood("y", X=bad, y=Y, sigma=0.3)


@pytest.mark.parametrize("name", ["GRIEF", "SKIP", "SoftKI"])
def test_inputs_of_a_new_group_that_replace_the_training_inputs_are_refused(name):
    """Between the ends of the range too: under DTC the features hold no variance there."""
    kind, options = {
        "GRIEF": (sgp.GriefGP, {"rank": 20, "grid": 12}),
        "SKIP": (sgp.SKIPMarginal, {"grid_size": 20, "rank": 8}),
        "SoftKI": (sgp.SoftKIMarginal, {"inducing": 12}),
    }[name]
    known = X[:, 1] != 1.0
    with pm.Model() as model:
        data = pm.Data("X", X[known])
        gp = kind(cov_func=make("Matern52", 0.8, pm.HalfNormal("scale")), approx="DTC", **options)
        gp.marginal_likelihood("y", X=data, y=Y[known], sigma=0.3)

    def logp():
        return model.compile_logp(mode="FAST_COMPILE")({"scale_log__": 0.1})

    assert np.isfinite(logp())
    with model:
        pm.set_data({"X": np.where([False, True], 1.0, X[known])})
    with pytest.raises(ValueError, match="beyond the range or the labels that the GP was built on"):
        logp()
    with pytest.raises(ValueError, match="beyond the range or the labels that the GP was built on"):
        gp.predict(X[:1], {"scale": 1.0}, model=model)


BASES = {
    "GRIEF": lambda k: sgp.GriefGP(cov_func=k, approx="DTC", rank=20, grid=12),
    "SKIP": lambda k: sgp.SKIPMarginal(cov_func=k, approx="DTC", grid_size=20, rank=8),
    "CholQR": lambda k: sgp.CholQRMarginal(cov_func=k, approx="DTC", n_inducing=12),
    "sum": lambda k: (
        sgp.CholQRMarginal(cov_func=c.ExpQuad(2, ls=1.5, active_dims=[0]), approx="DTC", n_inducing=8)
        + sgp.CholQRMarginal(cov_func=k, approx="DTC", n_inducing=12)
    ),
}


@pytest.mark.parametrize("name", ["GRIEF", "SKIP"])
def test_statistics_of_another_lengthscale_are_refused(name):
    """A basis is told by its values at inputs, of which each has a label."""
    made = [BASES[name](make("Matern52", [0.5, ls, 0.8], 1.2)) for ls in (0.3, 0.5)]
    for gp in made:
        gp.build(X)
    statistics = made[0].summarize(X, Y, progressbar=False)
    with pm.Model(), pytest.raises(ValueError, match="made in another basis"):
        made[1].marginal_likelihood("y", statistics=statistics, sigma=0.3)


@pytest.mark.parametrize("name", ["SKIP", "CholQR", "sum"])
def test_statistics_of_a_basis_with_labels(name):
    """It was told by inputs between groups, where it is NaN: no statistics were its own."""
    rows = X + np.array([0.0, 1.0])  # of groups without 0
    gp, found = BASES[name](make("Matern52", 0.8, 1.2)), []
    gp.build(rows)
    for data in ({"X": rows, "y": Y}, {"statistics": gp.summarize(rows, Y, progressbar=False)}):
        with pm.Model() as model:
            gp.marginal_likelihood("y", **data, sigma=0.3)
        found.append(model.compile_logp(mode="FAST_COMPILE")({}))
    assert_allclose(found[1], found[0], rtol=1e-8)


@pytest.mark.parametrize("kind", ["Matern52", "RatQuad"])
def test_rows_of_no_group_are_nan(kind):
    """A kernel that does not vanish far away compares groups apart."""
    bad = np.array([[0.0, 0.5], [1.0, 0.5]])
    assert np.isnan(make(kind, 1.0, 1.0)(bad).eval()).all()


@pytest.mark.parametrize(
    ("name", "approx", "lacks"),
    [
        ("GRIEF", "DTC", "the inputs of the build do not have"),
        ("SKIP", "FITC", "no training input has"),
        ("SKIP", "VIF", "no training input has"),
    ],
)
def test_rows_of_a_group_that_the_build_did_not_have_are_refused(name, approx, lacks):
    """As where they are replaced: its features hold no variance there, or are NaN."""
    known = X[:, 1] != 1.0
    kind = {"GRIEF": sgp.GriefGP, "SKIP": sgp.SKIPMarginal}[name]
    options = {"GRIEF": {"rank": 20, "grid": 12}, "SKIP": {"grid_size": 20, "rank": 8}}[name]
    with pm.Model():
        gp = kind(cov_func=make("Matern52", 0.8, 1.2), approx=approx, **options)
        gp.build(X[known])
        with pytest.raises(ValueError, match=f"column 1 holds 1, which {lacks}"):
            gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
        gp.marginal_likelihood("y", X=X[known], y=Y[known], sigma=0.3)
        with pytest.raises(ValueError, match=f"column 1 holds 1, which {lacks}"):
            gp.predict(X[:3:2], {}, given={"X": X, "y": Y, "sigma": 0.3})


def test_a_group_without_a_point_is_warned_of():
    """SoftKI gives its rows all points of the nearest label."""
    kernel = make("Matern52", 0.8, 1.5)
    points = X[X[:, 1] != 1.0][:8]
    with pytest.warns(UserWarning, match="no point lies at 1 of column 1"):
        sgp.SoftKIMarginal(cov_func=kernel, inducing=points).build(X)
    sgp.SoftKIMarginal(cov_func=kernel, inducing=X[:8]).build(X)
