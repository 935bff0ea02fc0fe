"""Row-wise Kronecker products and the Hadamard matvec."""

import re

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_scalable_gp.ops import hadamard
from pymc_scalable_gp.ops.hadamard import (
    RowKroneckerApply,
    RowKroneckerProject,
    hadamard_matvec,
    row_kronecker_apply,
    row_kronecker_project,
)
from pymc_scalable_gp.testing import check_op

SIZES = [(7, 2, 3, 4), (0, 2, 2, 1), (1, 1, 1, 1), (4, 3, 0, 2), (3, 5, 6, 2)]


def case(last, n, a, b, k, step=1):
    rng = np.random.default_rng(n)
    C = rng.standard_normal((a, b, k) if last == "core" else (n, k))
    return rng.standard_normal((n * step, a))[::step], rng.standard_normal((n, b)), C


@pytest.mark.parametrize("small_blocks", [pytest.param(False, marks=pytest.mark.slow), True])
def test_apply(small_blocks, monkeypatch):
    if small_blocks:
        monkeypatch.setattr(hadamard, "_block", lambda width: 2)
    check_op(
        RowKroneckerApply,
        row_kronecker_apply,
        lambda A, B, C: np.einsum("na,nb,abk->nk", A, B, C),
        [case("core", *s) for s in SIZES] + [case("core", 6, 2, 2, 2, step=2)],
        twin=lambda A, B, C: ((A[:, :, None] * B[:, None, :])[:, :, :, None] * C[None]).sum(axis=(1, 2)),
        modes=() if small_blocks else ("NUMBA",),
        rtol=1e-12,
        jax_cases=2,
    )


@pytest.mark.parametrize("small_blocks", [False, True])
def test_project(small_blocks, monkeypatch):
    if small_blocks:
        monkeypatch.setattr(hadamard, "_block", lambda width: 2)
    check_op(
        RowKroneckerProject,
        row_kronecker_project,
        lambda A, B, G: np.einsum("na,nb,nk->abk", A, B, G),
        [case("rows", *s) for s in SIZES],
        twin=lambda A, B, G: ((A[:, :, None] * B[:, None, :])[:, :, :, None] * G[:, None, None, :]).sum(
            axis=0
        ),
        modes=() if small_blocks else ("NUMBA",),
        rtol=1e-12,
        jax_cases=2,
    )


@pytest.mark.parametrize("n", [50, 10_000])
def test_rows_are_not_filled_up_to_a_block_of_the_largest_size(n):
    """Those of JAX have one size. Of 30 columns 8738 rows are the most in one."""
    jax = pytest.importorskip("jax")
    inputs = [jax.ShapeDtypeStruct(shape, "float64") for shape in ((n, 2), (n, 30), (2, 30, 1))]
    graph = str(jax.make_jaxpr(hadamard._jax_apply)(*inputs))
    shapes = re.findall(r"f\d+\[([\d,]+)\]", graph)
    assert max(int(length) for shape in shapes for length in shape.split(",")) == n


def test_hadamard_matvec():
    check_op(
        RowKroneckerApply,
        hadamard_matvec,
        lambda A, B, v: ((A @ A.T) * (B @ B.T)) @ v,
        [case("rows", *s) for s in SIZES],
        twin=lambda A, B, v: ((A @ A.T) * (B @ B.T)) @ v,
        rtol=1e-12,
        jax_cases=1,
    )
    A, B, _ = case("rows", 7, 2, 3, 1)
    v = np.arange(7.0)
    np.testing.assert_allclose(hadamard_matvec(A, B, v).eval(), ((A @ A.T) * (B @ B.T)) @ v, rtol=1e-12)
    with pytest.raises(ValueError, match="v must have shape"):
        hadamard_matvec(A, B, pt.tensor3())
    with pytest.raises(TypeError, match=r"RowKroneckerApply needs inputs of shapes \(n, a\), \(n, b\)"):
        row_kronecker_apply(A, B, np.ones((2, 3)))
