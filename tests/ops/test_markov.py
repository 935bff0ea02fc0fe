"""Sums of Markov processes, against the dense covariance."""

import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from marks import in_back_ends
from numpy.testing import assert_allclose
from pytensor.compile.mode import Mode
from scipy import stats

from pymc_scalable_gp.ops import _markov_op
from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops._jax import jax
from pymc_scalable_gp.ops._markov_steps import features_in_use
from pymc_scalable_gp.ops.markov_columns import markov_color, markov_smooth, markov_solve
from pymc_scalable_gp.ops.markov_logp import MarkovLogp, MarkovSlopes, markov_logp
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON

RNG = np.random.default_rng(0)
# A Matern process, three static features of which two go together, a product, and two copies of one.
KIND = {"orders": (1, -1, 2, 0, 2), "counts": (1, 1, 2, 1), "sizes": (1, 2, 1, 2)}
K, F = sum(KIND["sizes"]), len(KIND["orders"])


def inputs(n, rng=RNG):
    """Steps, some of them 0, rates, variances, features, noise and residual."""
    dt = rng.exponential(0.3, n)
    dt[3:5] = 0.05
    rates = np.array([0.7, 0.0, 1.1, 0.4, 2.0])
    G = rng.standard_normal((n, K))
    return dt, rates, rng.uniform(0.2, 1.0, K), G, rng.uniform(0.1, 0.2, n), rng.standard_normal(n)


def covariance(dt, rates, V, G, noise, kind=KIND):
    """Dense."""
    t = np.cumsum(np.r_[0.0, dt[1:]])
    R = abs(t[:, None] - t)
    forms = {
        -1: np.ones_like, 0: lambda u: np.exp(-u), 1: lambda u: (1 + u) * np.exp(-u),
        2: lambda u: (1 + u + u**2 / 3) * np.exp(-u),
    }  # fmt: skip
    total, f, k = np.diag(noise), 0, 0
    for count, size in zip(kind["counts"], kind["sizes"], strict=True):
        part = (G[:, k : k + size] * V[k : k + size]) @ G[:, k : k + size].T
        for i in range(f, f + count):
            part = part * forms[kind["orders"][i]](rates[i] * R)
        total, f, k = total + part, f + count, k + size
    return total


def dense_logp(*args):
    if not len(args[0]):
        return np.zeros(())
    *process, e = args
    return np.asarray(stats.multivariate_normal(cov=covariance(*process)).logpdf(e))


@in_back_ends
def test_density_and_gradient(modes):
    def build(*args):
        return markov_logp(*args, **KIND)

    cases = [inputs(37), inputs(1)]  # two blocks of 16 rows and a part of one
    check_op(MarkovLogp, build, dense_logp, cases, rtol=1e-10, modes=modes, jax_cases=1)


def test_no_rows_and_times_that_are_equal():
    empty = [x[:0] if x.shape[:1] == (4,) else x for x in inputs(4)]
    assert markov_logp(*empty, **KIND).eval() == 0.0
    dt, *rest = inputs(9)
    dt[2:6] = 0.0
    assert_allclose(markov_logp(dt, *rest, **KIND).eval(), dense_logp(dt, *rest), rtol=1e-11)


def test_rows_that_are_not_all_kept(monkeypatch):
    """The gradient from some rows' covariances is that from all of them."""
    args = inputs(70)  # five blocks, of which two are kept
    slopes = MarkovSlopes(**KIND)(*map(pt.as_tensor, args))
    expected = [s.eval() for s in slopes]
    monkeypatch.setattr(sys.modules[MarkovLogp.__module__], "KEPT", 0)
    for found, value in zip(slopes, expected, strict=True):
        assert_allclose(found.eval(), value, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("many", "states"), [(14, 13), (35, 6.5)])
def test_many_rows_in_python_are_machine_code(monkeypatch, many, states):
    """Seven rows of 13 states are just as many, two are not."""
    taken = []
    machine = _markov_op.by_machine_code
    monkeypatch.setattr(_markov_op, "MANY", many)
    monkeypatch.setattr(_markov_op, "STATES", states)
    monkeypatch.setattr(
        _markov_op, "by_machine_code", lambda *given: taken.append(given) or machine(*given)
    )
    args = inputs(7)
    assert_allclose(markov_logp(*args, **KIND).eval(), dense_logp(*args), rtol=1e-11)
    assert len(taken) == 1
    markov_logp(*inputs(2), **KIND).eval()
    assert len(taken) == 1
    monkeypatch.setattr(_markov_op, "IN_ALL", 3.0 * (1.0 + (13.0 / states) ** 2))
    logp = markov_logp(*inputs(1), **KIND)  # PyTensor keeps no Op of before
    for calls in (1, 1, 2):
        logp.eval()
        assert len(taken) == calls


def test_what_the_graph_computes():
    """One Op for density and gradient, and a solution where only the residual's slope is wanted."""
    tensors = [pt.tensor(dtype="float64", shape=(None,) * x.ndim) for x in inputs(2)]
    logp = markov_logp(*tensors, **KIND)
    mode = Mode("py", "fast_run")  # with all rewrites
    both = pytensor.function(tensors, [logp, *pt.grad(logp, tensors)], mode=mode)
    alone = pytensor.function(tensors, pt.grad(logp, tensors[-1]), mode=mode)
    kinds = [
        [type(n.op).__name__ for n in f.maker.fgraph.toposort() if "Markov" in type(n.op).__name__]
        for f in (both, alone)
    ]
    assert kinds == [["MarkovSlopes"], ["MarkovSolve"]]
    args = inputs(8)
    assert_allclose(alone(*args), both(*args)[-1], rtol=1e-11)


def test_a_covariance_that_is_not_positive_definite_gives_nan():
    dt, rates, V, G, noise, e = inputs(6)
    found = [x.eval() for x in MarkovSlopes(**KIND)(dt, rates, -V, G, noise, e)]
    assert all(np.isnan(x).all() for x in (found[0], found[1], found[5]))


@pytest.mark.parametrize("mode", [IN_PYTHON, *(["JAX"] if jax is not None else [])])
def test_noise_without_end_gives_nan(mode):
    """A row without a target is none of a density's."""
    dt, rates, V, G, noise, e = inputs(6)
    noise = np.where(np.arange(len(noise)) == 2, np.inf, noise)
    place = pt.vector("noise")
    assert np.isnan(markov_logp(dt, rates, V, G, place, e, **KIND).eval({place: noise}, mode=mode))


def test_small_noise_and_close_times():
    """A ten-thousandth of a lengthscale apart, the noise a millionth of the variance."""
    kind = {"orders": (2,), "counts": (1,), "sizes": (1,)}
    n, scale = 40, 1e-4
    dt, ones = np.full(n, scale), np.ones(n)
    e = 1e-3 * RNG.standard_normal(n)
    args = dt, np.ones(1), np.ones(1), ones[:, None], 1e-6 * ones
    S = covariance(*args, kind=kind)
    expected = stats.multivariate_normal(cov=S).logpdf(e)
    assert_allclose(markov_logp(*args, e, **kind).eval(), expected, rtol=1e-8)


def test_features_of_no_weight_are_left_out():
    kind = {"orders": (0,), "counts": (1,), "sizes": (3,)}
    dt, ones, e = np.full(5, 0.3), np.ones(5), RNG.standard_normal(5)
    G = RNG.standard_normal((5, 3))
    V = np.array([1.0, 1e-16, 0.0])
    found = [x.eval() for x in MarkovSlopes(**kind)(dt, np.ones(1), V, G, ones, e)]
    assert (found[3][1:] == 0.0).all()
    expected = stats.multivariate_normal(cov=covariance(dt, np.ones(1), V, G, ones, kind)).logpdf(e)
    assert_allclose(found[0], expected, rtol=1e-12)


def test_what_is_left_out_is_bounded_by_the_noise():
    V, row = 10.0 ** -np.arange(8.0, 16.0), np.full((1, 8), 1.1)
    assert features_in_use(V, row, np.ones(1)).tolist() == [0, 1, 2, 3]
    assert features_in_use(V, row, np.full(1, 0.01)).tolist() == [0, 1, 2, 3, 4, 5]
    for noise in (0.0, np.inf):
        assert len(features_in_use(V, row, np.full(1, noise))) == 8


@pytest.mark.slow
def test_solutions_draws_and_smoothing():
    *process, noise, _ = inputs(12)
    B, seen = RNG.standard_normal((12, 2)), RNG.uniform(size=12) < 0.6
    S = covariance(*process, noise)
    cov = S - np.diag(noise)

    def of_columns(op):
        return lambda *args: op(*args, **KIND)

    def solved(*args):
        return np.linalg.solve(covariance(*args[:5]), args[5])

    def colored(*args):
        return np.linalg.cholesky(covariance(*args[:5])) @ args[5]

    cases = [(*process, noise, B)]
    check_op(None, of_columns(markov_solve), solved, cases, differentiable=[])
    check_op(None, of_columns(markov_color), colored, cases, differentiable=[])
    zero = markov_color(*process, 0.0 * noise, np.eye(12), **KIND).eval()
    assert_allclose(zero @ zero.T, cov, atol=1e-12)

    def smoothed(*args):
        d = args[4]
        seen = np.isfinite(d)
        K = covariance(*args[:4], np.zeros(len(d)))
        inner, cross = K[np.ix_(seen, seen)] + np.diag(d[seen]), K[:, seen]
        var = np.diag(K) - np.sum(cross * np.linalg.solve(inner, cross.T).T, axis=1)
        return cross @ np.linalg.solve(inner, args[5][seen]), var

    cases = [(*process, noise, B), (*process, np.where(seen, noise, np.inf), B)]
    check_op(None, of_columns(markov_smooth), smoothed, cases, differentiable=[], jax_cases=1)
    tensor = pt.matrix()
    total = markov_solve(*process, noise, tensor, **KIND).sum()
    with pytest.raises(ValueError, match="has no gradient"):
        pt.grad(total, tensor)


@pytest.mark.parametrize("order", [*(pytest.param(i, marks=pytest.mark.slow) for i in (0, 1)), 2])
def test_one_process_alone(order):
    """In Numba it has code of its own."""
    kind = {"orders": (order,), "counts": (1,), "sizes": (1,)}
    dt, _, _, G, noise, e = inputs(12)
    process, B = (dt, np.array([0.8]), np.array([1.3]), G[:, :1]), RNG.standard_normal((12, 2))

    def dense(*args):
        *process, e = args
        return np.asarray(stats.multivariate_normal(cov=covariance(*process, kind)).logpdf(e))

    cases = [(*process, noise, e)]
    check_op(MarkovLogp, lambda *a: markov_logp(*a, **kind), dense, cases, modes=(BY_OPS,), jax_cases=0)
    seen = np.where(RNG.uniform(size=12) < 0.6, noise, np.inf)
    tensors = [pt.tensor(dtype="float64", shape=(None,) * x.ndim) for x in (*process, noise, B)]
    outputs = [markov_solve(*tensors, **kind), *markov_smooth(*tensors, **kind)]
    solved, numba = (pytensor.function(tensors, outputs, mode=mode) for mode in (IN_PYTHON, BY_OPS))
    for d in (noise, seen):
        found, expected = numba(*process, d, B), solved(*process, d, B)
        for value, other in list(zip(found, expected, strict=True))[d is seen :]:
            assert_allclose(value, other, rtol=1e-9, atol=1e-12)
    failed = [f(*process[:2], -process[2], process[3], noise, B) for f in (solved, numba)]
    assert np.isnan(np.concatenate([np.ravel(x) for out in failed for x in out])).all()


@pytest.mark.parametrize("n", [2, 3])
def test_wrong_lengths(n):
    dt, rates, *rest = inputs(n)
    with pytest.raises((TypeError, ValueError), match="MarkovLogp needs inputs"):
        markov_logp(dt, rates[:2], *rest, **KIND)


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        (([3], [1], [1]), "orders must be -1, 0, 1 or 2, got 3"),
        (([-2], [1], [1]), "orders must be -1, 0, 1 or 2, got -2"),
        (([0], [2], [1]), r"1 orders do not fit counts \(2,\) and sizes \(1,\)"),
        (([0], [1, 1], [1]), "do not fit counts"),
        (([0], [1], [1, 1]), "do not fit counts"),
        (([0], [1, 0], [1, 1]), "do not fit counts"),
        (([0], [1], [-1]), "do not fit counts"),
        (([0, -1], [2], [1]), "a constant, of order -1, must be a group of its own"),
    ],
)
def test_refuses_groups_that_do_not_fit(kind, match):
    ones = np.ones(3)
    with pytest.raises(ValueError, match=match):
        markov_logp(ones, [1.0], [1.0], ones[:, None], ones, ones, *kind)
