"""Sorted eigendecompositions, and gradients where eigenvalues are equal or tiny."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops import eigh_sorted
from pymc_scalable_gp.ops.eigh_sorted import EighSorted
from pymc_scalable_gp.testing import PY, check_op


def reference(matrices):
    values, vectors = np.linalg.eigh(0.5 * (matrices + matrices.transpose(0, 2, 1)))
    values, vectors = values[:, ::-1], vectors[:, :, ::-1]
    return values, vectors * np.where(vectors[:, :1] < 0.0, -1.0, 1.0)


def build(matrices):
    return eigh_sorted(0.5 * (matrices + matrices.transpose(0, 2, 1)))


def spectrum(rng, *values):
    """Random symmetric matrix with these eigenvalues."""
    q, _ = np.linalg.qr(rng.standard_normal((len(values), len(values))))
    return (q * np.array(values, dtype=float)) @ q.T


def kernel(ell, m=6):
    u = np.linspace(0.0, 1.0, m)
    return np.exp(-0.5 * ((u[:, None] - u) / ell) ** 2)


def test_op():
    rng = np.random.default_rng(0)
    base = rng.standard_normal((2, 4, 4))
    strided = rng.standard_normal((4, 8, 4))[::2, ::-2]
    cases = [base, base[:1, :1, :1], np.zeros((0, 3, 3)), strided, np.asfortranarray(base)]
    check_op(
        EighSorted, build, reference, [(a,) for a in cases], rtol=1e-12, grad_rtol=1e-9, jax_cases=2
    )


def test_values_against_pytensors_own_gradient():
    """For one matrix PyTensor's eigh is an independent derivation; signs do not matter for |q|."""
    rng = np.random.default_rng(1)
    a, (g, h) = pt.matrix(dtype="float64"), rng.standard_normal((2, 5, 5))
    sym = 0.5 * (a + a.T)
    values, vectors = (v[0] for v in eigh_sorted(sym[None]))
    own_values, own_vectors = pt.linalg.eigh(sym)
    losses = [
        (values * g[0]).sum() + (vectors**2 * h).sum(),
        (own_values[::-1] * g[0]).sum() + (own_vectors[:, ::-1] ** 2 * h).sum(),
    ]
    found, own = pytensor.function([a], [pt.grad(loss, a) for loss in losses], mode=PY)(
        spectrum(rng, 3, 2, 1, 0.3, -1)
    )
    assert_allclose(found, 0.5 * (own + own.T), rtol=1e-9, atol=1e-11)


def invariant(matrices, top, middle):
    """A function that does not depend on the basis inside the eigenspaces 0:1, 1:3, 3:."""
    values, vectors = eigh_sorted(matrices)
    parts = [vectors[:, :, :1], vectors[:, :, 1:3], vectors[:, :, 3:]]
    projectors = [pt.matmul(v, v.transpose(0, 2, 1)) for v in parts]
    pair = values[:, 1:3]
    return (projectors[0] * top).sum() + (projectors[1] * middle).sum() + (pair**2).sum()


@pytest.fixture(scope="module")
def invariant_gradient():
    a, top, middle = (pt.tensor3(dtype="float64") for _ in range(3))
    loss = invariant(a, top, middle)
    return pytensor.function([a, top, middle], [loss, pt.grad(loss, a)], mode=PY)


@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-12, 1e-8, 1e-4])
def test_gradient_of_an_invariant_function_near_a_degenerate_pair(invariant_gradient, gap):
    """Finite whatever the gap, and right: central differences of the function, which is smooth."""
    rng = np.random.default_rng(2)
    matrix = spectrum(rng, 3.0, 1.0 + gap, 1.0, 0.2, 0.1)[None]
    top, middle = rng.standard_normal((2, 1, 5, 5))
    direction = rng.standard_normal((1, 5, 5))
    direction = direction + direction.transpose(0, 2, 1)
    _, gradient = invariant_gradient(matrix, top, middle)
    step = 1e-5
    up, down = (
        invariant_gradient(matrix + sign * step * direction, top, middle)[0] for sign in (1, -1)
    )
    # 1e-6: rounding 1e-16 / gap of a pair's rotation is at worst 1e-7 here (gap 1e-8, and below
    # SEPARATION the coupling is dropped).
    assert_allclose((gradient * direction).sum(), (up - down) / (2 * step), rtol=1e-6)


def test_gradient_with_tiny_eigenvalues():
    """A smooth kernel: eigenvalues down to rounding; the leading ones' gradient is still right."""
    ell, u = pt.scalar(dtype="float64"), np.linspace(0.0, 1.0, 12)
    gram = pt.exp(-0.5 * ((u[:, None] - u) / ell) ** 2)
    values, vectors = eigh_sorted(gram[None])
    loss = (pt.log(values[0, :4])).sum() + (vectors[0, :, :3] ** 4).sum()
    function = pytensor.function([ell], [loss, pt.grad(loss, ell)], mode=PY)
    value, gradient = function(1.5)
    assert reference(kernel(1.5, 12)[None])[0].min() < 1e-15
    assert np.isfinite(value)
    slope = (function(1.5 + 1e-5)[0] - function(1.5 - 1e-5)[0]) / 2e-5
    assert_allclose(gradient, slope, rtol=1e-6)


def test_signs_are_continuous_in_the_lengthscale():
    """The first entries of a totally positive kernel's eigenvectors do not vanish."""
    a = pt.tensor3(dtype="float64")
    function = pytensor.function([a], eigh_sorted(a)[1], mode=PY)
    before, after = (function(kernel(ell)[None]) for ell in (0.3, 0.3001))
    assert_allclose(before, after, atol=1e-3)


def test_padding_gives_zero_eigenvalues_last():
    a = pt.tensor3(dtype="float64")
    function = pytensor.function([a], eigh_sorted(a), mode=PY)
    padded = np.zeros((1, 5, 5))
    padded[0, :3, :3] = kernel(0.5, 3)
    values, vectors = function(padded)
    assert_allclose(values[0, 3:], 0.0, atol=1e-15)
    assert_allclose(vectors[0, 3:, :3], 0.0, atol=1e-15)


@pytest.mark.parametrize(("bad", "mode"), [(np.nan, PY), (np.inf, PY), (np.nan, "NUMBA")])
def test_nonfinite_matrix_gives_nan_and_leaves_the_others(bad, mode):
    a = pt.tensor3(dtype="float64")
    function = pytensor.function([a], eigh_sorted(a), mode=mode)
    matrices = np.stack([kernel(0.4, 5), kernel(0.4, 5)])
    matrices[0, 1, 2] = matrices[0, 2, 1] = bad
    values, vectors = function(matrices)
    assert np.isnan(values[0]).all()
    assert np.isnan(vectors[0]).all()
    assert_allclose(values[1], reference(kernel(0.4, 5)[None])[0][0], rtol=1e-12, atol=1e-15)


def test_needs_stacked_matrices():
    with pytest.raises(TypeError, match=r"EighSorted needs inputs of shapes \(d, m, m\)"):
        eigh_sorted(np.eye(3))
