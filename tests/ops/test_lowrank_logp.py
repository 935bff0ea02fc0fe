"""Low-rank Gaussian log density: three approximations, two factorisations, failures."""

import numba as nb
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from compared import dense_marginal
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops import _lowrank_terms as terms
from pymc_scalable_gp.ops import lowrank_logp
from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops._kernels import norm_one
from pymc_scalable_gp.ops.lowrank_logp import APPROXIMATIONS, LowRankLogp
from pymc_scalable_gp.ops.lowrank_posterior import lowrank_posterior
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON


def problem(n, r, vector_noise=True, seed=0, numerical_rank=None):
    """phi, noise, residual, weights, kdiag; some rows of kdiag lie below ||phi||^2."""
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((n, r))
    if numerical_rank is not None:
        phi = phi[:, :numerical_rank] @ rng.standard_normal((numerical_rank, r))
    noise = 0.3 + rng.random(n) if vector_noise else np.array(0.5)
    weights = 0.5 + rng.random(r)
    kdiag = (phi**2 * weights).sum(axis=1) + rng.uniform(-0.5, 1.5, n)
    return phi, noise, rng.standard_normal(n), weights, kdiag


def reference(approx):
    def terms(phi, noise, residual, weights, kdiag):
        n, _r = phi.shape
        missed = np.maximum(kdiag - (phi**2 * weights).sum(axis=1), 0.0)
        variance = np.broadcast_to(noise, n) + (missed if approx == "FITC" else 0.0)
        cov = (phi * weights) @ phi.T + np.diag(variance)
        logp = dense_marginal(phi, noise, residual, weights, kdiag, approx) if n else 0.0
        alpha = np.linalg.solve(cov, residual)
        return logp, alpha, weights * (phi.T @ alpha), None, variance

    return terms


def build(approx):
    return lambda phi, noise, residual, weights, kdiag: lowrank_logp(
        phi, noise, residual, weights=weights, kdiag=kdiag, approx=approx
    )


def twin(approx):
    def logp(phi, noise, residual, weights, kdiag):
        low = (phi * weights) @ phi.T
        missed = pt.maximum(kdiag - pt.diag(low), 0.0)
        noise = noise * pt.ones_like(residual)
        cov = low + pt.diag(noise + (missed if approx == "FITC" else 0.0))
        chol = pt.linalg.cholesky(cov)
        white = pt.linalg.solve_triangular(chol, residual, lower=True, b_ndim=1)
        value = -0.5 * (white**2).sum() - pt.log(pt.diag(chol)).sum()
        value = value - 0.5 * residual.shape[0] * np.log(2.0 * np.pi)
        return value - (0.5 * (missed / noise).sum() if approx == "VFE" else 0.0)

    return logp


def variants(vector_noise):
    full = problem(12, 4, vector_noise)
    strided = tuple(
        np.repeat(np.repeat(a, 2, axis=0), 2, axis=1)[::2, ::2] if a.ndim == 2
        else np.repeat(a, 2)[::2] if a.ndim else a
        for a in full
    )  # fmt: skip
    return [
        full,
        problem(1, 3, vector_noise, 1),
        problem(5, 9, vector_noise, 2),  # r > n
        problem(15, 6, vector_noise, 3, numerical_rank=2),
        strided,
        (np.asfortranarray(full[0]), *full[1:]),
    ]


@pytest.mark.parametrize(
    ("approx", "vector_noise", "modes", "jax_cases"),
    [  # all against NumPy and automatic differentiation; compiled where they differ. Numba with
        # the other pairs runs in the tests of the methods.
        ("DTC", False, [BY_OPS], 1),
        pytest.param("DTC", False, ["NUMBA"], 0, marks=pytest.mark.slow),
        pytest.param("FITC", True, ["NUMBA"], 0, marks=pytest.mark.slow),
        ("FITC", False, [], 1),
        ("VFE", True, [], 1),
        ("VFE", False, [], 0),
        ("DTC", True, [], 0),
    ],
)
def test_op(approx, vector_noise, modes, jax_cases):
    check_op(
        LowRankLogp,
        build(approx),
        reference(approx),
        variants(vector_noise),
        twin=twin(approx),
        differentiable=[0],
        rtol=1e-10,
        grad_rtol=1e-8,
        modes=modes,
        jax_cases=jax_cases,
        seed=3,
    )


@pytest.fixture(scope="module")
def compiled():
    """Value and gradients by name of approximation, of vector noise; in Numba and in Python."""
    found = {}

    def get(approx="DTC", mode=IN_PYTHON, vector_noise=True):
        key = (approx, mode is IN_PYTHON, vector_noise)
        if key not in found:
            noise = pt.vector(dtype="float64") if vector_noise else pt.scalar(dtype="float64")
            args = [pt.matrix(dtype="float64"), noise]
            args += [pt.vector(dtype="float64") for _ in range(3)]
            outputs = build(approx)(*args)
            grads = pt.grad(outputs[0], args, disconnected_inputs="ignore")
            options = {"on_unused_input": "ignore", "mode": mode}
            found[key] = pytensor.function(args, [*outputs, *grads], **options)
        return found[key]

    return get


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS], ids=["py", "numba"])
def test_no_rows(compiled, mode):
    args = problem(0, 3)
    logp, alpha, coef, root, variance, *grads = compiled("FITC", mode)(*args)
    assert logp == 0.0
    assert alpha.shape == variance.shape == (0,)
    assert_allclose(coef, 0.0)
    assert_allclose(root.T @ root, np.diag(args[3]))  # the prior
    assert [g.shape for g in grads] == [(0, 3), (0,), (0,), (3,), (0,)]


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS], ids=["py", "numba"])
def test_no_features(compiled, mode):
    phi, noise, residual, weights, _ = problem(4, 0)
    kdiag = np.array([0.5, 0.0, 1.0, -1.0])
    variance = noise + np.maximum(kdiag, 0.0)
    expected = -0.5 * (residual**2 / variance + np.log(2 * np.pi * variance)).sum()
    found = compiled("FITC", mode)(phi, noise, residual, weights, kdiag)
    assert_allclose(found[0], expected, rtol=1e-13)
    assert_allclose(found[1], residual / variance, rtol=1e-13)


@pytest.mark.parametrize("approx", ["DTC", "FITC"])
def test_posterior_of_the_coefficients(compiled, approx):
    """``root' root = (W^-1 + Phi' D^-1 Phi)^-1``, ``coef`` its mean."""
    args = problem(20, 5)
    phi, _, residual, weights, _ = args
    _, _, coef, root, variance = compiled(approx, IN_PYTHON)(*args)[:5]
    precision = np.diag(1.0 / weights) + (phi.T / variance) @ phi
    assert_allclose(root.T @ root, np.linalg.inv(precision), rtol=1e-10)
    assert_allclose(root, np.tril(root))
    assert_allclose(coef, np.linalg.solve(precision, phi.T @ (residual / variance)), rtol=1e-10)


# -- accuracy -----------------------------------------------------------------------------------


def orthogonal_problem(smallest, n=60, r=8, seed=0):
    """Phi with orthonormal columns times known singular values; every term is a closed form."""
    rng = np.random.default_rng(seed)
    u, _ = np.linalg.qr(rng.standard_normal((n, r)))
    v, _ = np.linalg.qr(rng.standard_normal((r, r)))
    s = np.geomspace(1.0, np.sqrt(smallest), r)
    phi = (u * s) @ v.T
    residual = u @ (s * rng.standard_normal(r)) + 1e-6 * rng.standard_normal(n)
    return phi, residual


def exact(phi, noise, residual):
    """logp and d logp / d noise, d residual from an SVD in extended precision."""
    _u, s, _ = np.linalg.svd(phi, full_matrices=False)
    # One Jacobi-style polish: orthonormalise in long double, so that S = U s^2 U' holds to 1e-19.
    wide = phi.astype(np.longdouble)
    basis = []
    for column in (wide @ np.linalg.svd(phi)[2].T.astype(np.longdouble)).T:
        for _ in range(2):
            for q in basis:
                column = column - q * (q @ column)
        basis.append(column / np.sqrt(column @ column))
    q = np.array(basis).T
    inner = q.T @ wide
    e, noise = residual.astype(np.longdouble), np.longdouble(noise)
    small = inner @ inner.T + noise * np.eye(len(s), dtype=np.longdouble)
    chol = long_cholesky(small)
    p = q.T @ e
    rest = e - q @ p
    white = long_solve(chol, p)
    n, r = phi.shape
    logdet = 2 * np.log(np.diag(chol)).sum() + (n - r) * np.log(noise)
    quad = white @ white + rest @ rest / noise
    alpha = q @ long_solve(chol, white, transposed=True) + rest / noise
    inverse = np.array([long_solve(chol, c) for c in np.eye(r, dtype=np.longdouble)])
    trace = (inverse**2).sum() + (n - r) / noise
    logp = -0.5 * (quad + logdet + n * np.log(2 * np.longdouble(np.pi)))
    return float(logp), float(0.5 * (alpha @ alpha - trace)), alpha.astype(float)


def long_cholesky(a):
    a = np.tril(a)
    for j in range(len(a)):
        a[j:, j] -= a[j:, :j] @ a[j, :j]
        a[j:, j] /= np.sqrt(a[j, j])
    return a


def long_solve(chol, b, transposed=False):
    x, n = b.copy(), len(b)
    for i in reversed(range(n)) if transposed else range(n):
        seen = chol[i + 1 :, i] @ x[i + 1 :] if transposed else chol[i, :i] @ x[:i]
        x[i] = (x[i] - seen) / chol[i, i]
    return x


@pytest.mark.parametrize("mode", [IN_PYTHON, "NUMBA", "JAX"], ids=["py", "numba", "jax"])
@pytest.mark.parametrize("noise", [1e-2, 1e-6, 1e-9, 1e-12])
def test_accuracy_with_noise_far_below_the_largest_eigenvalue(scalar_functions, mode, noise):
    """Eigenvalues of Phi Phi' from 1 to 1e-12, noise down to 1e-12 of the largest."""
    phi, residual = orthogonal_problem(1e-12)
    value, by_noise, by_residual = scalar_functions(mode)(phi, noise, residual)
    expected = exact(phi, noise, residual)
    assert_allclose(value, expected[0], rtol=1e-7)
    assert_allclose(by_noise, expected[1], rtol=1e-6)
    scale = np.abs(expected[2]).max()
    assert_allclose(by_residual, -expected[2], rtol=0, atol=1e-6 * scale)


@pytest.fixture(scope="module")
def scalar_functions():
    found = {}

    def get(mode):
        if mode == "JAX":
            pytest.importorskip("jax")
        if mode not in found:
            phi, noise = pt.tensor(dtype="float64", shape=(60, 8)), pt.scalar(dtype="float64")
            residual = pt.tensor(dtype="float64", shape=(60,))
            logp = lowrank_logp(phi, noise, residual)[0]
            outputs = [logp, *pt.grad(logp, [noise, residual])]
            found[mode] = pytensor.function([phi, noise, residual], outputs, mode=mode)
        return found[mode]

    return get


@pytest.fixture
def routes(monkeypatch):
    """Calls of the two factorisations in Python mode."""
    calls = []
    for name in ("factor_scaled", "factor_qr"):
        plain = getattr(terms, name)

        def counted(*args, name=name, plain=plain):
            calls.append(name)
            return plain(*args)

        monkeypatch.setattr(terms, name, counted)
    return calls


def test_route_follows_the_conditioning(compiled, routes):
    """Well conditioned: one Cholesky. Otherwise: the QR as well."""
    compiled("DTC", IN_PYTHON)(*problem(20, 4))
    assert routes == ["factor_scaled"]
    routes.clear()
    phi, residual = orthogonal_problem(1.0, r=4)
    steep = phi @ np.array([[1, 1, 0, 0], [0, 1e-7, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    compiled("DTC", IN_PYTHON)(steep, np.full(60, 1e-10), residual, np.ones(4), np.ones(60))
    assert routes == ["factor_scaled", "factor_qr"]


def test_a_common_scale_of_the_features_needs_no_qr(compiled, routes):
    """The bound is on B scaled to a unit diagonal: features of very different sizes are harmless."""
    phi, noise, residual, weights, kdiag = problem(20, 4)
    compiled("DTC", IN_PYTHON)(phi * [1.0, 1e3, 1e6, 1e-3], noise, residual, weights, kdiag)
    assert routes == ["factor_scaled"]


@pytest.mark.parametrize("approx", APPROXIMATIONS)
@pytest.mark.parametrize("vector_noise", [True, False])
def test_routes_agree_where_they_hand_over(compiled, routes, monkeypatch, approx, vector_noise):
    """Condition number of 1e5, below the bound of 1e6: forced through either route."""
    rng = np.random.default_rng(5)
    phi, _, residual, weights, kdiag = problem(600, 6, seed=4)  # several QR blocks (rows 256)
    phi[:, 1] = phi[:, 0] + 0.01 * rng.standard_normal(600)
    noise = np.full(600, 0.01) * (1 + rng.random(600)) if vector_noise else np.array(0.01)
    function, found = compiled(approx, IN_PYTHON, vector_noise), []
    for bound in (0.0, np.inf):
        monkeypatch.setattr(terms, "GRAM_CONDITION_BOUND", bound)
        found.append(function(phi, noise, residual, weights, kdiag))
    assert routes == ["factor_scaled", "factor_qr", "factor_scaled"]
    gram, qr = found
    for a, b in zip(gram, qr, strict=True):  # triangular factors are unique up to column signs
        if a.shape == (6, 6):
            a, b = a.T @ a, b.T @ b
        assert_allclose(a, b, rtol=0, atol=1e-9 * max(np.abs(b).max(), 1e-300))


# -- failures -----------------------------------------------------------------------------------


def bad_inputs():
    base = problem(6, 3)
    for place, name in enumerate(["phi", "noise", "residual", "weights", "kdiag"]):
        for bad in (np.nan, np.inf, *([0.0, -1.0] if name == "weights" else [])):
            broken = [a.copy() for a in base]
            broken[place].flat[1] = bad
            yield pytest.param(tuple(broken), id=f"{name}={bad}")


@pytest.mark.parametrize("mode", [IN_PYTHON, "NUMBA", "JAX"], ids=["py", "numba", "jax"])
@pytest.mark.parametrize("args", list(bad_inputs()))
def test_bad_numbers_give_nan_and_no_exception(compiled, jax_fitc, mode, args):
    """FITC uses all inputs. A proposal with such a value is rejected, whatever the sampler."""
    logp = jax_fitc(*args) if mode == "JAX" else compiled("FITC", mode)(*args)[0]
    assert np.isnan(logp) or logp == -np.inf


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS], ids=["py", "numba"])
@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_a_variance_that_is_not_positive_gives_nan(compiled, mode, bad):
    args = problem(6, 3)
    args[1][2] = bad
    args[4][:] = 0.0  # nothing is added to the noise
    logp, alpha, *_ = compiled("FITC", mode)(*args)
    assert np.isnan(logp)
    assert np.isnan(alpha).all()


@pytest.fixture(scope="module")
def jax_fitc():
    pytest.importorskip("jax")
    args = [pt.tensor(dtype="float64", shape=a.shape) for a in problem(6, 3)]
    return pytensor.function(args, build("FITC")(*args)[0], mode="JAX")


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS], ids=["py", "numba"])
def test_overflowing_features_give_nan(compiled, mode):
    phi, *rest = problem(6, 3)
    assert np.isnan(compiled("FITC", mode)(phi * 1e200, *rest)[0])


def test_wrong_calls():
    phi, noise, residual, weights, _ = problem(6, 3)
    with pytest.raises(ValueError, match="approx must be one of"):
        lowrank_logp(phi, noise, residual, kdiag=residual, approx="SOR")
    with pytest.raises(ValueError, match="approx='FITC' needs kdiag"):
        lowrank_logp(phi, noise, residual, approx="FITC")
    for op in lowrank_logp, lowrank_posterior:
        with pytest.raises(ValueError, match="approx must be one of"):
            op(phi, noise, residual, approx="VIF")  # before what that would need
    with pytest.raises(TypeError, match=r"LowRankLogp needs inputs .* got 1, 1, 1, 1, 1"):
        lowrank_logp(phi[:, 0], noise, residual)
    with pytest.raises(TypeError, match=r"LowRankLogp needs inputs of shapes \(n, r\), \(r\)"):
        lowrank_logp(phi[0], noise, residual, weights=weights)
    with pytest.raises(TypeError, match=r"LowRankLogp needs inputs .* got 2, 1, 2, 1, 1"):
        lowrank_logp(phi, np.ones((6, 1)), residual)


def test_only_logp_is_differentiable():
    phi = pt.matrix(dtype="float64")
    alpha = lowrank_logp(phi, np.array(0.5), np.ones(4))[1]
    with pytest.raises(ValueError, match="only the first output of LowRankLogp"):
        pt.grad(alpha.sum(), phi)


def test_the_second_sweep_of_the_ridge_solution():
    """A factor that is off by 1e-4 leaves 2e-4 of the coefficients after one sweep, its square now."""
    rng = np.random.default_rng(0)
    phi, residual = rng.standard_normal((30, 4)), rng.standard_normal(30)
    inner = np.eye(4) + phi.T @ phi / 0.5
    lower = np.linalg.inv(np.linalg.cholesky(inner)) * (1.0 + 1e-4)
    beta, alpha = np.zeros(4), np.zeros(30)
    variance = np.full(30, 0.5)
    terms._refine(phi.T.copy(), np.ones(4), variance, residual, lower, beta, alpha)
    exact = np.linalg.solve(inner, phi.T @ residual / 0.5)
    assert_allclose(beta, exact, rtol=1e-6)
    assert_allclose(alpha, (residual - phi @ exact) / 0.5, atol=1e-6)


@pytest.mark.parametrize(
    "mode", [IN_PYTHON, pytest.param("NUMBA", marks=pytest.mark.slow), "JAX"], ids=["py", "numba", "jax"]
)
@pytest.mark.parametrize("scalar", [True, False], ids=["scalar", "by_row"])
def test_slope_in_a_small_noise_with_more_features_than_rows(mode, scalar):
    """Then ``n - r + tr B^-1``, and ``1/D - phi' M phi / D^2``, are differences of equal numbers."""
    if mode == "JAX":
        pytest.importorskip("jax")
    rng, n = np.random.default_rng(0), 20
    phi, weights, e = (rng.standard_normal((n, 30)), rng.uniform(0.5, 2.0, 30), rng.standard_normal(n))
    noise = pt.scalar(dtype="float64") if scalar else pt.vector(dtype="float64")
    logp = lowrank_logp(phi, noise, e, weights=weights)[0]
    slope = pytensor.function([noise], pt.grad(logp, noise), mode=mode)
    wide = phi.astype(np.longdouble)
    S = (wide * weights) @ wide.T + np.longdouble(1e-10) * np.eye(n)
    inverse = np.array([long_solve(long_cholesky(S), c) for c in np.eye(n, dtype=np.longdouble)])

    expected = 0.5 * ((inverse @ (inverse.T @ e)) ** 2 - (inverse**2).sum(axis=1)).astype(float)
    found = np.asarray(slope(np.array(1e-10) if scalar else np.full(n, 1e-10)))
    wanted = expected.sum() if scalar else expected
    assert_allclose(found, wanted, rtol=0.0, atol=1e-3 * np.abs(expected).max())


def test_the_norm_that_tells_conditions_sees_nan():
    """Compiled, the largest of numbers among which one is NaN was another one."""
    compiled = nb.njit(lambda lower: norm_one(lower))
    for lower in (np.tril(np.arange(9.0).reshape(3, 3)), np.zeros((0, 0)), np.diag([1.0, np.nan, 2.0])):
        assert_allclose(compiled(lower), norm_one(lower))
