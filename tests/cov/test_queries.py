"""What a covariance is made of, and what is said about columns that it does not look at."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.gp import cov as c

import pymc_scalable_gp as sgp
from pymc_scalable_gp.cov.queries import check_kernel, fixed_matrices, warn_unused_columns

X = np.random.default_rng(0).uniform(size=(12, 3))
Y = X.sum(axis=1)
WEIGHTS = np.eye(12) + 0.5 * np.outer(Y, Y)
MATCH = r"^Only 1 column\(s\) out of 3 are being used .* column 1, 2 of X\. Give .* input_dim=3"
pytestmark = pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")


@pytest.mark.parametrize(
    "make",
    [
        lambda k: sgp.GriefGP(cov_func=k, grid=6, rank=6),
        lambda k: sgp.SoftKIMarginal(cov_func=k, inducing=6),
        lambda k: sgp.KMCGMarginal(cov_func=k, n_iter=5),
        lambda k: sgp.CholQRMarginal(cov_func=k, n_inducing=6),
        lambda k: sgp.SKIPMarginal(cov_func=k, grid_size=20, rank=6),
    ],
    ids=["GriefGP", "SoftKI", "KMCG", "CholQR", "SKIP"],
)
def test_every_class_says_so_once_at_the_users_line(make):
    gp = make(2.0 * c.ExpQuad(1, ls=0.5))
    with pm.Model():
        with pytest.warns(UserWarning, match=MATCH) as found:
            gp.marginal_likelihood("y", X=X, y=Y, sigma=0.1)
        found = [w for w in found if "chosen by the kernel alone" not in str(w.message)]
        assert {(w.filename, str(w.message)) for w in found} == {(__file__, str(found[0].message))}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gp.predict(X[:2], point={})


def test_nothing_is_said_about_what_is_intended():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unused_columns(c.ExpQuad(3, ls=0.5, active_dims=[0]), 3)
        warn_unused_columns(c.ExpQuad(3, ls=0.5) + 1.0, 3)
        warn_unused_columns(c.ExpQuad(2, ls=0.5), 3, also=[2])
        warn_unused_columns(c.Constant(2.0), 3)
        with pm.Model():
            gp = sgp.SKIPMarginal(
                cov_func=c.ExpQuad(1, ls=0.5), grid_size=20, rank=6, task_dim=1,
                task_cov=np.ones((2, 1)),
            )  # fmt: skip
            gp.marginal_likelihood("y", X=np.column_stack([X[:, 0], np.arange(12) % 2]), y=Y, sigma=0.1)


def test_columns_with_another_use_are_not_counted():
    with pytest.warns(UserWarning, match=r"column\(s\) out of 4 .* column 1, 3 of X"):
        warn_unused_columns(c.ExpQuad(1, ls=0.5), 4, also=[2])


@pytest.mark.parametrize(
    "make",
    [
        lambda k: sgp.VecchiaMarginal(cov_func=k),
        lambda k: sgp.VecchiaLatent(cov_func=k),
        lambda k: sgp.GriefGP(cov_func=k, grid=6, rank=6),
        lambda k: sgp.SoftKIMarginal(cov_func=k, inducing=6),
        lambda k: sgp.KMCGMarginal(cov_func=k, n_iter=5),
        lambda k: sgp.CholQRMarginal(cov_func=k, n_inducing=6),
        lambda k: sgp.SKIPMarginal(cov_func=k, grid_size=20, rank=6),
    ],
    ids=["Vecchia", "VecchiaLatent", "GriefGP", "SoftKI", "KMCG", "CholQR", "SKIP"],
)
def test_a_matrix_belongs_to_the_exact_gp(make):
    """With blocks of as many rows as the matrix has, densities were off by 28 without a word."""
    for kernel in (c.ExpQuad(3, ls=0.5) * WEIGHTS, c.ExpQuad(3, ls=0.5) + WEIGHTS):
        with pytest.raises(ValueError, match=r"array of shape \(12, 12\).* sgp.ExactMarginal"):
            make(kernel)


def test_a_constant_kernel_is_a_scalar():
    """PyMC repeats an array in each row of the matrix, which is no covariance."""
    for value in (np.ones(3), pt.dvector("value")):
        kernel = c.Constant(value) * c.Matern12(1, ls=0.5)
        for kind in (sgp.ExactMarginal, sgp.StateSpaceMarginal):
            with pytest.raises(ValueError, match=r"array of shape .*only scalars can scale"):
                kind(cov_func=kernel)


def test_a_vector_scales_no_kernel():
    """Not the exact GP's either, which failed in PyTensor's words where it has one entry of named dims."""
    with pm.Model(coords={"one": [0]}):
        eta = pm.HalfNormal("eta", dims="one")
    for scale, shape in ((eta, r"\(1,\)"), (np.ones(12), r"\(12,\)")):
        with pytest.raises(ValueError, match=rf"array of shape {shape}, .* such as eta\[0\] of a vector"):
            sgp.ExactMarginal(cov_func=c.ExpQuad(3, ls=0.5) * scale)


def test_the_exact_gp_takes_a_matrix():
    found = []
    for kind, options in ((sgp.ExactMarginal, {}), (pm.gp.Marginal, {"jitter": 0.0})):
        with pm.Model() as model:
            gp = kind(cov_func=c.ExpQuad(3, ls=0.5) * WEIGHTS)
            gp.marginal_likelihood("y", X=X, y=Y, sigma=0.1, **options)
        found.append(model.compile_logp()({}))
    assert found[0] == pytest.approx(found[1], rel=1e-8)


def test_a_matrix_is_known_at_the_likelihoods_rows_alone(monkeypatch):
    """It was added to the covariance with any other rows, where these were as many."""
    monkeypatch.setattr("pymc_scalable_gp.core.likelihoods.exact._BLOCK", 5, raising=False)
    kernel = c.ExpQuad(3, ls=0.5)
    with pm.Model():
        smooth, rest = (sgp.ExactMarginal(cov_func=k) for k in (kernel, 0.5 * kernel + WEIGHTS))
        gp = smooth + rest
        gp.marginal_likelihood("y", X, Y, 0.1)
        for call in (
            lambda: gp.predict(X + 100.0, {}, diag=True),
            lambda: rest.predict(X[:5], {}, given={"gp": gp}),
            lambda: gp.conditional("f", X[::-1]),
            lambda: gp.conditional("f", pm.Data("new", X)),
        ):
            with pytest.raises(
                ValueError, match="holds a fixed matrix, which is known at the likelihood's"
            ):
                call()
        for call in (
            lambda: gp.predict(X, {}, given={"X": X[:5], "y": Y[:5], "sigma": 0.1}),
            lambda: gp.check({}, rows=5, progressbar=False),
            lambda: sgp.subset_map(gp, X, Y, 0.1, max_rows=5, progressbar=False),
        ):
            with pytest.raises(ValueError, match="has 5 rows, but cov_func holds a fixed matrix of 12"):
                call()
        mean, var = gp.predict(X, {}, diag=True)
        part, _ = smooth.predict(X[:5] + 0.1, {}, diag=True, given={"gp": gp})
        assert gp.check({}, progressbar=False).attrs["gap"] == 0.0
        other, holes = sgp.ExactMarginal(cov_func=kernel + WEIGHTS), np.where(X[:, 0] < 0.5, Y, np.nan)
        with (
            pytest.warns(UserWarning, match="missing"),
            pytest.raises(ValueError, match="fixed matrix of 12"),
        ):
            other.marginal_likelihood("z", X, holes, 0.1)
    K = 1.5 * kernel(X).eval() + WEIGHTS
    solved = np.linalg.solve(K + 0.01 * np.eye(12), np.c_[Y, K])
    np.testing.assert_allclose(mean, K @ solved[:, 0], rtol=1e-9)
    np.testing.assert_allclose(var, np.diag(K - K @ solved[:, 1:]), rtol=1e-7)
    np.testing.assert_allclose(part, kernel(X[:5] + 0.1, X).eval() @ solved[:, 0], rtol=1e-9)


def test_matrices_within_kernels_of_other_inputs_count_and_those_of_one_entry_do_not():
    plain, matrix = pm.gp.cov.ExpQuad(2, ls=[0.5]), pt.eye(12)  # one lengthscale for both columns
    scaled = pm.gp.cov.ScaledCov(2, plain + matrix, lambda X: X[:, :1], ())
    for cov, expected in (
        (scaled, [matrix]),
        (plain * np.full((1, 1), 2.0), []),
        (plain * matrix, [matrix]),
    ):
        check_kernel(cov, arrays=True)
        assert fixed_matrices(cov) == expected


@pytest.mark.parametrize("label", [2.0, -1.0, 0.5])
@pytest.mark.parametrize("make", [sgp.ExactMarginal, sgp.VecchiaMarginal, sgp.CholQRMarginal])
def test_labels_of_outputs_are_rows_of_their_matrix(make, label):
    """Compiled code reads beyond the matrix, or from its end, without a word."""
    X = np.column_stack([np.linspace(0.0, 1.0, 12), np.arange(12) % 2])
    wrong = X.copy()
    wrong[4, 1] = label
    options = {"n_inducing": 4} if make is not sgp.ExactMarginal else {}
    said = rf"has {label:g} as output in row 4, column 1: .* from 0 below 2"
    with pm.Model() as model:
        W = pm.HalfNormal("W", 1.0, shape=(2, 1))
        cov = pm.gp.cov.Coregion(2, W=W, kappa=np.ones(2), active_dims=[-1])
        gp = make(cov_func=cov * pm.gp.cov.ExpQuad(2, ls=0.5, active_dims=[0]), **options)
        with pytest.raises(ValueError, match="X " + said):
            gp.marginal_likelihood("bad", wrong, X[:, 0], 0.3)
        if make is sgp.CholQRMarginal:
            gp.build(X)
            with pytest.raises(ValueError, match="X " + said):
                gp.marginal_likelihood("bad", wrong, X[:, 0], 0.3)
        gp.marginal_likelihood("y", X, X[:, 0], 0.3)
        with pytest.raises(ValueError, match="Xnew " + said):
            gp.predict(wrong, model.initial_point(), diag=True)


def test_a_lengthscale_that_is_always_zero():
    """In units of the sd of a constant column: densities were NaN, and nothing said why."""
    sds = np.array([1.0, 0.0, 2.0])
    with pm.Model():
        ell = pm.Deterministic("ell", sds * pm.InverseGamma("u", 3.0, 3.0, shape=3))
        single = 0.0 * pm.InverseGamma("v", 3.0, 3.0)
        for kernel, place in (
            (pm.gp.cov.ExpQuad(3, ls=ell), "lengthscale 1"),
            (pm.gp.cov.ExpQuad(3, ls=single), "the l"),
        ):
            with pytest.raises(ValueError, match=f"{place}.* of ExpQuad is 0 whatever its prior"):
                sgp.ExactMarginal(cov_func=2.0 * kernel)
        sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(3, ls=(1.0 + sds) * pm.InverseGamma("w", 3.0, 3.0)))


def test_a_scaled_kernel_sees_the_columns_that_are_handed_on():
    """Compiled code read beyond them without a word, labels and columns."""
    ones, inner = (lambda x: pt.ones(x.shape[0])), pm.gp.cov.Matern52(2, ls=0.5, active_dims=[1])
    with pytest.raises(ValueError, match=r"uses column 1, but X\[:, \[1\]\] of ScaledCov has 1 columns"):
        sgp.ExactMarginal(cov_func=pm.gp.cov.ScaledCov(2, inner, ones, active_dims=[1]))
    sgp.ExactMarginal(cov_func=pm.gp.cov.ScaledCov(2, inner, ones))
    outputs = pm.gp.cov.Coregion(1, W=np.ones((2, 1)), kappa=np.ones(2), active_dims=[0])
    gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ScaledCov(3, outputs, ones, active_dims=[2]))
    labels = np.column_stack([X[:, :2], np.arange(12) % 3])
    with (
        pm.Model(),
        pytest.raises(ValueError, match=r"X\[:, \[2\]\] has 2 as output in row 2, column 0: .* 2"),
    ):
        gp.marginal_likelihood("y", labels, Y, 0.3)


def test_columns_that_are_counted_from_the_last_are_there():
    kernel = pm.gp.cov.Matern52(4, ls=0.5, active_dims=[-4])
    scaled = pm.gp.cov.ScaledCov(
        4, pm.gp.cov.Matern52(1, ls=0.5), lambda x: pt.ones(x.shape[0]), active_dims=[-4]
    )
    for each in (kernel, scaled):
        gp = sgp.ExactMarginal(cov_func=each)
        with pm.Model(), pytest.raises(ValueError, match="the kernel uses column -4, but X has 3 columns"):
            gp.marginal_likelihood("y", X, Y, 0.3)


@pytest.mark.parametrize("label", [2.0, -1.0, 0.5])
@pytest.mark.parametrize("make", [sgp.ExactMarginal, sgp.CholQRMarginal, sgp.SoftKILatent])
def test_labels_of_rows_that_were_replaced_are_rows_of_the_matrix(make, label):
    """As compiled code reads beyond the matrix, or from its end; other rows of known outputs are taken."""
    X = np.column_stack([np.linspace(0.0, 1.0, 12), np.arange(12) % 2])
    wrong, right = X.copy(), X[::-1]
    wrong[4, 1] = label
    cov = pm.gp.cov.Coregion(2, W=np.ones((2, 1)), kappa=np.ones(2), active_dims=[-1])
    options = {sgp.CholQRMarginal: {"n_inducing": 4}, sgp.SoftKILatent: {"inducing": 6}}.get(make, {})
    gp = make(cov_func=cov * pm.gp.cov.ExpQuad(2, ls=0.5, active_dims=[0]), **options)
    with pm.Model() as model:
        data = pm.Data("X", X)
        if make is sgp.SoftKILatent:
            f = gp.prior("f", data)
            pm.Normal("y", f, 0.3, observed=X[:, 0])
        else:
            gp.marginal_likelihood("y", data, X[:, 0], 0.3)
        logp, start = model.compile_logp(), model.initial_point()
        pm.set_data({"X": right})
        assert np.isfinite(logp(start))
        pm.set_data({"X": wrong})
        with pytest.raises(ValueError, match=r"outputs, column 1, are no whole numbers from 0 below 2"):
            logp(start)
