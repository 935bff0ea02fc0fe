"""Distances on the globe: kernels, neighbours and densities across the date line and the poles."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.vecchia.neighbors import Metric, order_rows
from pymc_scalable_gp.cov.kernels import kernel_diag, kernel_matrix
from pymc_scalable_gp.cov.queries import turning_columns, used_range
from pymc_scalable_gp.utils.compiled import IN_PYTHON

c = pm.gp.cov
R = 6371.0088
RNG = np.random.default_rng(0)
# Both sides of the date line, the poles, an antipode, a longitude beyond 180.
X = np.array([
    [0.0, 179.9], [0.1, -179.8], [-35.0, 12.0], [35.0, -168.0], [90.0, 0.0], [89.0, 150.0],
    [88.5, -40.0], [-90.0, 7.0], [-89.5, -100.0], [51.5, 0.1], [51.4, 359.9], [10.0, 20.0],
])  # fmt: skip
FORMS = {
    "Matern12": ({}, lambda r, ls: np.exp(-r / ls)),
    "Exponential": ({}, lambda r, ls: np.exp(-r / (2 * ls))),
    "ExpQuad": ({}, lambda r, ls: np.exp(-0.5 * (r / ls) ** 2)),
    "Matern32": ({}, lambda r, ls: (1 + 3**0.5 * r / ls) * np.exp(-(3**0.5) * r / ls)),
    "RatQuad": ({"alpha": 0.7}, lambda r, ls: (1 + 0.5 * (r / ls) ** 2 / 0.7) ** -0.7),
}
VALID = [("arc", "Matern12"), ("arc", "Exponential"), *(("chord", kind) for kind in FORMS)]


def arcs(A, B):
    """Haversine distances in km (n, m)."""
    a, b = np.deg2rad(A)[:, None], np.deg2rad(B)
    half = np.sin((a - b) / 2) ** 2
    inside = half[..., 0] + np.cos(a[..., 0]) * np.cos(b[..., 0]) * half[..., 1]
    return 2 * R * np.arcsin(np.sqrt(np.minimum(inside, 1.0)))


def dense(A, B, distance, kind, ls):
    r = arcs(A, B)
    return FORMS[kind][1](2 * R * np.sin(r / (2 * R)) if distance == "chord" else r, ls)


def make(distance, kind, ls, **kwargs):
    return sgp.cov.GreatCircle(getattr(c, kind), ls=ls, distance=distance, **FORMS[kind][0], **kwargs)


@pytest.mark.parametrize(("distance", "kind"), VALID)
def test_values(distance, kind):
    cov = make(distance, kind, 2000.0)
    expected = dense(X, X, distance, kind, 2000.0)
    assert_allclose(kernel_matrix(cov, X).eval(mode=IN_PYTHON), expected, rtol=1e-7, atol=1e-12)
    assert_allclose(kernel_matrix(cov, X[:3], X).eval(mode=IN_PYTHON), expected[:3], rtol=1e-7, atol=1e-12)
    assert_array_equal(kernel_diag(cov, X).eval(mode=IN_PYTHON), 1.0)
    # PyMC's own distances have fewer digits.
    assert_allclose(cov(X).eval(mode=IN_PYTHON), expected, rtol=2e-6)
    assert np.linalg.eigvalsh(expected)[0] > -1e-10


def test_arcs_of_a_circle_are_a_covariance_for_these_kernels_alone():
    """On a great circle Matern 3/2 of the arc has eigenvalues below zero, which is why it is refused."""
    circle = np.column_stack([np.zeros(60), np.arange(60) * 6.0])
    valid = kernel_matrix(make("arc", "Matern12", 9000.0), circle).eval(mode=IN_PYTHON)
    assert np.linalg.eigvalsh(valid)[0] > 0
    assert np.linalg.eigvalsh(dense(circle, circle, "arc", "Matern32", 9000.0))[0] < -1e-3


def test_other_columns():
    wide = np.column_stack([RNG.standard_normal(len(X)), X[:, ::-1]])
    cov = make("arc", "Matern12", 500.0, input_dim=3, active_dims=[2, 1])
    assert_allclose(
        kernel_matrix(cov, wide).eval(mode=IN_PYTHON), dense(X, X, "arc", "Matern12", 500.0),
        rtol=1e-7, atol=1e-12,
    )  # fmt: skip


@pytest.mark.parametrize(("distance", "kind"), [("arc", "Matern12"), ("chord", "Matern32")])
def test_gradients(distance, kind):
    """In the lengthscale and the inputs, also between equal points and antipodes."""
    ls, Z = pt.dscalar("ls"), pt.dmatrix("Z")
    weights = RNG.standard_normal((len(X), 4))
    loss = (kernel_matrix(make(distance, kind, ls), X, Z) * weights).sum()
    outputs = [loss, *pt.grad(loss, [ls, Z])]
    places = X[[1, 2, 5, 11]] + [[0.0, 0.0], [0.0, 0.0], [0.3, 2.0], [4.0, 9.0]]

    def value(ell, points):
        return (dense(X, points, distance, kind, ell) * weights).sum()

    found, by_ls, by_z = (v.eval({ls: 3000.0, Z: places}, mode=IN_PYTHON) for v in outputs)
    assert_allclose(found, value(3000.0, places), rtol=1e-8)
    slope = (value(3001.0, places) - value(2999.0, places)) / 2
    assert_allclose(by_ls, slope, rtol=1e-6)
    step = np.zeros((4, 2))
    step[2:] = RNG.standard_normal((2, 2))  # the others are where the kernel has a kink
    slope = (value(3000.0, places + 1e-5 * step) - value(3000.0, places - 1e-5 * step)) / 2e-5
    assert np.isfinite(by_z).all()
    assert_allclose((by_z * step).sum(), slope, rtol=1e-5)


def stations(n):
    z, lon = np.random.default_rng(n).uniform(-1, 1, (2, n))
    return np.column_stack([np.rad2deg(np.arcsin(z)), 180.0 * lon])


def special(S):
    """Rows next to the date line and the poles."""
    return np.flatnonzero((np.abs(S[:, 1]) > 179.0) | (np.abs(S[:, 0]) > 88.0))


@pytest.mark.parametrize("distance", ["arc", "chord"])
def test_neighbors_are_the_nearest_on_the_globe(distance):
    S = stations(20_000)
    metric = Metric(make(distance, "Matern12", 300.0), S)
    ordering = order_rows(S, metric, block=1, neighbors=8, pred_neighbors=8, progressbar=False)
    ordered, places = S[ordering.order], special(S[ordering.order])
    across = 0
    for i in places[places > 20]:
        near = np.sort(arcs(ordered[i : i + 1], ordered[:i])[0])[:8]
        assert_allclose(arcs(ordered[i : i + 1], ordered[ordering.neighbors[i]])[0], near, rtol=1e-9)
        across += (np.abs(ordered[i, 1] - ordered[ordering.neighbors[i], 1]) > 300).sum()
    assert across > 200
    new = np.array([[0.0, 180.0], [90.0, 0.0], [-89.9, -179.0], [45.0, 539.9]])
    found = ordering.nearest(new)
    near = np.sort(arcs(new, ordered), axis=1)[:, :8]
    assert_allclose(np.take_along_axis(arcs(new, ordered), found, axis=1), near, rtol=1e-9)


def densities(make_gp, data, targets):
    with pm.Model() as model:
        ls, eta = pm.HalfNormal("ls", 5000.0), pm.HalfNormal("eta")
        cov = eta**2 * sgp.cov.GreatCircle(c.Matern12, ls=ls)
        gp = make_gp(cov)
        gp.marginal_likelihood("y", X=data, y=targets, sigma=0.3)
    function = model.compile_fn(
        [model.datalogp, *pt.grad(model.datalogp, model.value_vars)], mode=IN_PYTHON
    )
    return gp, model, lambda ell: function({"ls_log__": np.log(ell), "eta_log__": np.log(0.8)})


S = np.concatenate([X, stations(20)])
Y = np.sin(np.deg2rad(S[:, 0])) + 0.3 * RNG.standard_normal(len(S))
CLASSES = {
    "exact": lambda cov: sgp.ExactMarginal(cov_func=cov),
    "neighbors": lambda cov: sgp.VecchiaMarginal(cov_func=cov, n_inducing=5, neighbors=len(S), block=4),
    "CholQR": lambda cov: sgp.CholQRMarginal(
        cov_func=cov, n_inducing=5, approx="VIF", neighbors=len(S), block=4
    ),
    "SoftKI": lambda cov: sgp.SoftKIMarginal(
        cov_func=cov, inducing=6, approx="VIF", neighbors=len(S), block=4
    ),
}


@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize("name", CLASSES)
def test_density_and_prediction(name):
    gp, model, function = densities(CLASSES[name], S, Y)

    def value(ell):
        K = 0.64 * dense(S, S, "arc", "Matern12", ell) + 0.09 * np.eye(len(S))
        return multivariate_normal(cov=K).logpdf(Y)

    logp, slope, _ = function(2500.0)
    assert_allclose(logp, value(2500.0), rtol=1e-7 if name == "exact" else 1e-5)
    expected = (value(2500.0 * np.exp(1e-5)) - value(2500.0 * np.exp(-1e-5))) / 2e-5
    assert_allclose(slope, expected, rtol=1e-5 if name == "exact" else 1e-4)
    new = np.array([[1.0, 180.5], [89.9, 10.0]])
    point = {"ls": 2500.0, "eta": 0.8}
    mean, _ = gp.predict(new, point=point, diag=True, model=model)
    K = 0.64 * dense(S, S, "arc", "Matern12", 2500.0) + 0.09 * np.eye(len(S))
    exact = 0.64 * dense(new, S, "arc", "Matern12", 2500.0) @ np.linalg.solve(K, Y)
    assert_allclose(mean, exact, rtol=1e-4)
    other, _ = gp.predict(new - [0.0, 360.0], point=point, diag=True, model=model)
    assert_allclose(other, mean, rtol=1e-8)


def test_softki_goes_around_the_globe():
    """Rows on both sides of the date line have the same weights; the points are stations."""
    data = np.column_stack([np.zeros(40), np.linspace(170.0, 190.0, 40)])
    wrapped = np.where(data > 180.0, data - 360.0, data)
    cov = sgp.cov.GreatCircle(c.Matern12, ls=500.0)
    found = []
    for points in (data, wrapped):
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=points[3::6])
        gp.build(points)
        found.append(gp.features(points).eval(mode=IN_PYTHON))
    assert_allclose(*found, rtol=1e-9, atol=1e-12)
    gp = sgp.SoftKIMarginal(cov_func=cov, inducing=7)
    gp.build(wrapped)
    chosen = gp.feature_map.points.value
    assert (np.abs(chosen[:, None] - wrapped).sum(axis=2) == 0).any(axis=1).all()
    lon = np.sort(chosen[:, 1] % 360.0)
    assert_allclose(lon, np.linspace(170.0 + 10 / 7, 190.0 - 10 / 7, 7), atol=1.5)
    with pytest.raises(ValueError, match="give a scalar"):
        sgp.SoftKIMarginal(cov_func=cov, inducing=7, temperature=[1.0, 2.0]).build(data)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: make("arc", "Matern32", 1.0), ValueError, 'give distance="chord"'),
        (lambda: make("arc", "ExpQuad", 1.0), ValueError, 'give distance="chord"'),
        (lambda: make("chord", "Matern12", [1.0, 2.0]), ValueError, "ls must be a scalar"),
        (lambda: make("chord", "Matern12", -1.0), ValueError, "ls must be positive"),
        (lambda: make("chord", "Matern12", np.inf), ValueError, "ls must be positive"),
        (lambda: make("ring", "Matern12", 1.0), ValueError, "distance must be one of"),
        (lambda: sgp.cov.GreatCircle(c.Periodic, ls=1.0), ValueError, "kernel of one input"),
        (lambda: sgp.cov.GreatCircle(c.Cosine, ls=1.0, distance="chord"), ValueError, "one input"),
        (lambda: sgp.cov.GreatCircle(c.Linear, ls=1.0), TypeError, "class of stationary kernels"),
        (lambda: sgp.cov.GreatCircle(c.Matern12(2, ls=1.0), ls=1.0), TypeError, "got Matern12"),
        (lambda: sgp.cov.GreatCircle(c.Matern12, ls=1.0, alpha=2.0), TypeError, "takes no alpha="),
        (lambda: make("arc", "Matern12", 1.0, input_dim=1), ValueError, "takes two columns"),
        (lambda: make("arc", "Matern12", 1.0, input_dim=3, active_dims=[1]), ValueError, "two columns"),
    ],
)  # fmt: skip
def test_wrong_kernels(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_wrong_latitudes_are_refused_and_never_silent():
    cov = sgp.cov.GreatCircle(c.Matern12, ls=500.0)
    swapped = X[:, ::-1]
    gp = sgp.ExactMarginal(cov_func=cov)
    with pm.Model(), pytest.raises(ValueError, match="column 0 of X holds latitudes in degrees"):
        gp.marginal_likelihood("y", X=swapped, y=Y[: len(X)], sigma=1.0)
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=cov)
        gp.marginal_likelihood("y", X=X, y=Y[: len(X)], sigma=1.0)
    with model, pytest.raises(ValueError, match="column 0 of Xnew"):
        gp.predict(swapped, point={})
    assert np.isnan(kernel_matrix(cov, swapped).eval(mode=IN_PYTHON)).any()


@pytest.mark.parametrize("kind", [sgp.GriefGP, sgp.SKIPMarginal])
def test_classes_of_products_refuse_it(kind):
    with pytest.raises(ValueError, match="GreatCircle.*is not a product of 1-D kernels") as found:
        kind(cov_func=sgp.cov.GreatCircle(c.Matern12, ls=500.0))
    assert "sgp.cov.Product" not in str(found.value)


def test_the_diagonal_where_there_is_no_latitude():
    cov = sgp.cov.GreatCircle(c.Matern12, ls=500.0)
    places = np.array([[91.0, 0.0], [45.0, 3.0]])
    found = cov(places, diag=True).eval()
    assert np.array_equal(np.isnan(found), [True, False])
    assert_allclose(found, np.diag(cov(places).eval()), rtol=1e-6)


@pytest.mark.parametrize(("width", "has_ends"), [(329.0, True), (331.0, False)])
def test_longitudes_around_the_globe_have_no_ends(width, has_ends):
    low, high = np.array([-80.0, 10.0]), np.array([80.0, 10.0 + width])
    found = used_range(sgp.cov.GreatCircle(c.Matern12, ls=1000.0), low, high)
    assert_array_equal(found[0], [-80.0, 10.0 if has_ends else -np.inf])
    assert_array_equal(found[1], [80.0, 10.0 + width if has_ends else np.inf])


AROUND = np.column_stack([RNG.uniform(-60.0, 60.0, 60), RNG.uniform(-179.0, 179.0, 60)])


@pytest.mark.parametrize("width", [1.0, 0.2])  # around the globe, and from -36 to 36 degrees
@pytest.mark.parametrize("name", ["CholQR", "SoftKI", "sum"])
@pytest.mark.filterwarnings("ignore:points were chosen", "ignore:the points are")
def test_longitudes_of_another_turn_are_within_the_range(name, width):
    cov, places = sgp.cov.GreatCircle(c.Matern52, ls=3000.0, distance="chord"), AROUND * [1.0, width]
    if name == "CholQR":
        gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=30)
    else:
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=places[:40])
    if name == "sum":
        other = c.ExpQuad(2, ls=60.0, active_dims=[0])
        gp = gp + sgp.SoftKIMarginal(cov_func=other, inducing=places[:40])
    with pm.Model() as model:
        rows = pm.Data("X", places)
        gp.marginal_likelihood("y", X=rows, y=np.sin(places[:, 0] / 20.0), sigma=0.3)
    new, turn = places[:5] * 0.9, np.array([0.0, 360.0])
    found = model.compile_logp()({}), *gp.predict(new, {}, diag=True, model=model)
    turned = gp.predict(new - turn, {}, diag=True, model=model)
    model.set_data("X", places + turn * (places[:, 1:] < 0.0))
    for one, other in zip(found, (model.compile_logp()({}), *turned), strict=True):
        assert_allclose(one, other, rtol=1e-9)


def test_longitudes_far_from_the_range_are_beyond_it():
    cov, west = (
        sgp.cov.GreatCircle(c.Matern52, ls=500.0, distance="chord"),
        AROUND[np.abs(AROUND[:, 1]) < 40.0],
    )
    gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=len(west) - 2)
    gp.build(west)
    limits = gp.feature_map.input_range
    limits.check(west + np.array([0.0, 720.0]))
    with pytest.raises(ValueError, match="column 1 of X reaches"):
        limits.check(west + np.array([0.0, 180.0]))
    assert limits.outside(west + np.array([0.0, 180.0]), "it").startswith("column 1 reaches")


def test_a_column_that_another_kernel_reads_does_not_turn():
    cov = sgp.cov.GreatCircle(c.Matern12, ls=500.0, input_dim=3, active_dims=[-2, -1])
    assert turning_columns(2.0 * cov + c.ExpQuad(3, ls=1.0, active_dims=[0]), 3).tolist() == [2]
    assert turning_columns(cov + c.Linear(3, c=0.0, active_dims=[2]), 3).tolist() == []
