"""Block Vecchia: regressions on neighbours, whitening and draws, against dense algebra."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from block_plans import dense_factor, dense_rows, local, plan
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops import _block_factor
from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops._jax import jax
from pymc_scalable_gp.ops.vecchia_color import VecchiaColor, vecchia_color
from pymc_scalable_gp.ops.vecchia_factor import VecchiaFactor, vecchia_factor
from pymc_scalable_gp.ops.vecchia_whiten import VecchiaWhiten, vecchia_whiten
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON


def covariance(X, phi, noise):
    squared = ((X[:, None] - X) ** 2).sum(axis=2)
    return np.exp(-0.5 * squared) + np.diag(noise**2) - phi @ phi.T


def blocks_of(X, neighbors, g, first=0):
    """Kernel between the local rows, as a graph; noughts and worse where there are none."""
    count = len(neighbors)
    own = first + np.arange(count)[:, None] * g + np.arange(g)
    places = np.concatenate([neighbors, own], axis=1)
    rows = X[pt.constant(np.maximum(places, 0)).clip(0, X.shape[0] - 1)]
    squared = ((rows[:, :, None] - rows[:, None]) ** 2).sum(axis=3)
    return pt.specify_shape(pt.exp(-0.5 * squared), (count, *2 * (places.shape[1],)))


def twin_factor(X, phi, noise, neighbors, g, n, first=0):
    """The same with PyTensor's own factorisations, block by block."""
    squared = ((X[:, None] - X) ** 2).sum(axis=2)
    K = pt.exp(-0.5 * squared) - phi @ phi.T + pt.diag(noise**2)
    A, L = [], []
    k = neighbors.shape[1]
    for b in range(len(neighbors)):
        near, own = local(neighbors, b, n, g, first)
        a = pt.zeros((len(own), 0))
        if len(near):
            a = pt.linalg.solve(K[near][:, near], K[near][:, own]).T
        root = pt.linalg.cholesky(K[own][:, own] - a @ K[near][:, own])
        missing = g - len(own)
        full = pt.zeros((g, k))
        A.append(pt.set_subtensor(full[: len(own), : len(near)], a))
        L.append(pt.set_subtensor(pt.eye(g)[: g - missing, : g - missing], root))
    return pt.stack(A), pt.stack(L)


@pytest.mark.parametrize(
    ("n", "g", "k", "r", "first"),
    [(11, 3, 4, 2, 0), (7, 1, 3, 0, 0), (6, 6, 0, 1, 0), (9, 2, 2, 3, 4), (5, 2, 0, 1, 0)],
)
def test_factor(n, g, k, r, first):
    rng = np.random.default_rng(1)
    neighbors = plan(n, g, k, first)
    X, phi, noise = rng.standard_normal((n, 2)), 0.1 * rng.standard_normal((n, r)), np.full(n, 0.7)
    noise += 0.1 * rng.uniform(size=n)
    strided = np.repeat(X, 2, axis=0)[::2], np.asfortranarray(phi), np.repeat(noise, 3)[::3]

    def build(X, phi, noise):
        blocks = blocks_of(X, neighbors, g, first)
        return vecchia_factor(blocks, phi, noise**2, neighbors, first)

    check_op(
        VecchiaFactor if first else None, build,
        lambda X, phi, noise: dense_factor(covariance(X, phi, noise), neighbors, g, first),
        [(X, phi, noise), strided],
        twin=lambda X, phi, noise: twin_factor(X, phi, noise, neighbors, g, n, first),
        modes=(BY_OPS,) if (n, g) == (11, 3) else (), jax_cases=1,
    )  # fmt: skip


def test_factor_in_a_compiled_graph():
    """Of given blocks: to compile what they are made of takes longer."""
    n, g, k = 11, 3, 4
    rng = np.random.default_rng(1)
    neighbors = plan(n, g, k)
    X, phi, noise = rng.standard_normal((n, 2)), 0.1 * rng.standard_normal((n, 2)), np.full(n, 0.5)
    point = [blocks_of(pt.constant(X), neighbors, g).eval(mode=IN_PYTHON), phi, noise]
    given = [pt.tensor3(shape=point[0].shape), pt.dmatrix(), pt.dvector()]
    A, L = vecchia_factor(*given, neighbors)
    weights = [rng.standard_normal((4, g, k)), np.tril(rng.standard_normal((4, g, g)))]
    grads = pt.grad((A * weights[0]).sum() + (L * weights[1]).sum(), given)
    numba, python = (
        pytensor.function(given, [A, L, *grads], mode=mode)(*point) for mode in ("NUMBA", IN_PYTHON)
    )
    for a, b in zip(numba, python, strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("much", "calls"), [(4 * 7**2 * (2 + 7), 1), (4 * 7**2 * (2 + 7) + 1, 0)])
def test_much_work_in_python_is_machine_code(monkeypatch, much, calls):
    """Four blocks of three rows with four neighbours, on two features."""
    taken, machine = [], _block_factor.by_machine_code
    monkeypatch.setattr(_block_factor, "MUCH", much)
    monkeypatch.setattr(
        _block_factor, "by_machine_code", lambda *given: taken.append(given) or machine(*given)
    )
    neighbors, noise = plan(11, 3, 4), np.full(11, 0.7)
    X, phi = np.linspace(0.0, 3.0, 22).reshape(11, 2), np.linspace(-0.1, 0.1, 22).reshape(11, 2)
    factors = vecchia_factor(blocks_of(pt.constant(X), neighbors, 3), phi, noise**2, neighbors)
    found = pytensor.function([], list(factors), mode=IN_PYTHON)()
    for value, expected in zip(found, dense_factor(covariance(X, phi, noise), neighbors, 3), strict=True):
        assert_allclose(value, expected, rtol=1e-12, atol=1e-14)
    assert len(taken) == calls


def roots(A, L, g=3):
    """Any A; L lower triangular with a positive diagonal."""
    return A, L * np.tri(g, k=-1) + pt.exp(L) * np.eye(g)


def test_whiten():
    n, g, k = 11, 3, 4
    rng = np.random.default_rng(2)
    neighbors = plan(n, g, k)
    V, A, L = (rng.standard_normal(s) for s in ((n, 2), (4, g, k), (4, g, g)))

    def reference(V, A, L):
        roots = np.tril(L, -1) + np.exp(L) * np.eye(g)
        return dense_rows(A, roots, neighbors, n) @ V

    def twin(V, A, L):
        A, L = roots(A, L)
        out = []
        for b in range(len(neighbors)):
            near, own = local(neighbors, b, n, g)
            a, root = A[b, : len(own), : len(near)], L[b, : len(own), : len(own)]
            out.append(pt.linalg.solve(root, V[own] - a @ V[near]))
        return pt.concatenate(out)

    def build(V, A, L):
        return vecchia_whiten(V, *roots(A, L), neighbors)

    cases = [(V, A, L), (np.asfortranarray(V), A[:, ::-1], L), (V[:, :0], A, L)]
    check_op(VecchiaWhiten, build, reference, cases[:2], twin=twin, jax_cases=1)
    assert build(*map(pt.constant, cases[2])).eval().shape == (n, 0)
    root = pt.constant(roots(A, L)[1].eval())
    slope = pt.grad(vecchia_whiten(V, A, root, neighbors).sum(), root).eval()
    assert (np.triu(slope, 1) == 0.0).all()  # nothing above the diagonal, where nothing is read


@pytest.mark.parametrize("p", [0, 5])
def test_color(p):
    m, g, k = 8, 3, 4
    rng = np.random.default_rng(3)
    neighbors = plan(p + m, g, k, p)
    before, Z, A, L = (
        rng.standard_normal(s) for s in ((p, 2), (m, 2), (3, g, k), (3, g, g))
    )  # fmt: skip

    def run(before, Z, A, L, library):
        rows = [before[i] for i in range(p)]
        for b in range(3):
            near, own = local(neighbors, b, p + m, g, p)
            a, root = A[b, : len(own), : len(near)], L[b, : len(own), : len(own)]
            mean = a @ library.stack([rows[i] for i in near]) if len(near) else 0.0
            found = mean + root @ Z[own - p]
            rows += [found[i] for i in range(len(own))]
        return library.stack(rows[p:])

    def build(before, Z, A, L):
        return vecchia_color(Z, *roots(A, L), neighbors, before)

    def reference(before, Z, A, L):
        return run(before, Z, A, np.tril(L, -1) + np.exp(L) * np.eye(g), np)

    check_op(
        VecchiaColor, build, reference, [(before, Z, A, L)], jax_cases=1,
        twin=lambda before, Z, A, L: run(before, Z, *roots(A, L), pt),
        modes=("NUMBA",) if p else (),
    )  # fmt: skip


def test_color_inverts_whiten():
    n, g, k = 23, 4, 6
    rng = np.random.default_rng(4)
    neighbors = plan(n, g, k)
    X, phi = rng.standard_normal((n, 2)), 0.1 * rng.standard_normal((n, 3))
    A, L = dense_factor(covariance(X, phi, np.full(n, 0.5)), neighbors, g)
    V = rng.standard_normal((n, 2))
    white = vecchia_whiten(V, A, L, neighbors)
    assert_allclose(vecchia_color(white, A, L, neighbors).eval(mode=IN_PYTHON), V, rtol=1e-12)


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS])
def test_failure_gives_nan(mode):
    phi = pt.matrix(dtype="float64")
    neighbors = np.array([[-1, -1], [0, 1]])
    blocks = np.tile(np.eye(4), (2, 1, 1))
    A, L = vecchia_factor(blocks, phi, np.zeros(4), neighbors)
    total = A.sum() + L.sum()
    function = pytensor.function([phi], [A, L, pt.grad(total, phi)], mode=mode)
    bad = np.zeros((4, 1))
    bad[3] = 2.0  # more than the prior variance
    A, L, bar = function(bad)
    assert np.isfinite(np.stack([A[0], L[0]])).all()
    assert np.isnan(np.stack([A[1], L[1]])).all()
    assert np.isnan(bar).any()


def test_neighbors_factors_have_no_gradient():
    blocks = pt.tensor3(shape=(2, 2, 2))
    inputs = blocks, np.zeros((2, 1)), np.ones(2), np.array([[-1], [0]]), 0
    outputs = VecchiaFactor(1)(*inputs)
    pt.grad(outputs[0].sum() + outputs[1].sum(), blocks)
    with pytest.raises(ValueError, match="only the first 2 outputs of VecchiaFactor"):
        pt.grad(outputs[0].sum() + outputs[2].sum(), blocks)


def test_needs_static_widths():
    with pytest.raises(TypeError, match="static numbers of columns"):
        vecchia_factor(pt.tensor3(), np.zeros((4, 1)), np.ones(4), np.zeros((2, 1), dtype=int))


@pytest.mark.parametrize("mode", [IN_PYTHON, "NUMBA", *(["JAX"] if jax is not None else [])])
@pytest.mark.parametrize("op", [vecchia_whiten, vecchia_color])
def test_what_does_not_fit_gives_nan(op, mode):
    """Too few blocks; neighbours that are outside, come later or are the block itself; padding first."""
    rng = np.random.default_rng(5)
    inputs = pt.dmatrix(), pt.dtensor3(), pt.dtensor3()
    neighbors, out = pt.lmatrix(), 0.0
    out = op(*inputs, neighbors)
    run = pytensor.function([*inputs, neighbors], [out, *pt.grad(out.sum(), inputs)], mode=mode)
    A, L = rng.standard_normal((2, 2, 2)), np.tile(np.eye(2), (2, 1, 1))
    for n, good in (4, [0, 1]), (3, [1, -1]), (1, [-1, -1]):
        V = rng.standard_normal((n, 2))
        assert all(np.isfinite(x).all() for x in run(V, A, L, np.array([[-1, -1], good])))
    for n, bad in (4, [0, 4]), (4, [10**6, 0]), (4, [2, -1]), (4, [-1, 0]), (5, [0, 1]), (1, [1, -1]):
        V = rng.standard_normal((n, 2))
        found = run(V, A, L, np.array([[-1, -1], bad]))
        assert [x.shape for x in found] == [V.shape, V.shape, A.shape, L.shape]
        assert all(np.isnan(x).all() for x in found)


@pytest.mark.parametrize("mode", [IN_PYTHON, "NUMBA", *(["JAX"] if jax is not None else [])])
def test_a_block_whose_neighbors_do_not_fit_is_nan(mode):
    """Its own regression, and the gradient in its own rows; a block beyond the rows has the same limit."""
    phi, neighbors = pt.dmatrix(), pt.matrix(dtype="int64", shape=(3, 2))
    A, L = vecchia_factor(np.tile(np.eye(4), (3, 1, 1)), phi, np.ones(4), neighbors)
    run = pytensor.function([phi, neighbors], [A, L, pt.grad(A.sum() + L.sum(), phi)], mode=mode)
    features, none = np.full((4, 1), 0.3), [-1, -1]
    assert all(np.isfinite(x).all() for x in run(features, np.array([none, [0, 1], [1, 3]])))
    for bad in [0, 4], [10**6, 0], [2, -1], [-1, 0]:
        A, L, bar = run(features, np.array([none, bad, none]))
        assert all(np.isnan(x).all() for x in (A[1], L[1], bar[2:]))
        assert all(np.isfinite(x).all() for x in (A[::2], L[::2], bar[:2]))
    A, L, _ = run(features, np.array([none, none, [0, 4]]))  # row 4 would be before the third block
    assert np.isnan(A[2]).all()
    assert np.isfinite(A[:2]).all()
