"""Loops until a state no longer changes: in Python, in Numba and in JAX."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_scalable_gp.ops.repeat import outside, repeat

A = np.array([4.0, 9.0, 2.0])


def roots(limit=50):
    """Square roots by Newton's method: graphs of the numbers (3,), and how often the loop ran."""
    a = pt.vector("a", dtype="float64", shape=(3,))
    x, count = pt.vector("x", dtype="float64", shape=(3,)), pt.scalar("count", dtype="float64")
    new = 0.5 * (x + pt.sqr(pt.sqrt(a)) / x)
    done = pt.abs(new - x).max() < 1e-9
    start = [pt.ones(3), pt.constant(0.0, dtype="float64")]
    return a, repeat([x, count], [new, count + 1.0], start, done, limit)


@pytest.mark.parametrize("mode", [None, "FAST_COMPILE", "NUMBA", "JAX"])
def test_it_ends_where_nothing_changes(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    a, (x, count) = roots()
    assert x.type.shape == (3,)
    found, times = pytensor.function([a], [x, count], mode=mode)(A)
    np.testing.assert_allclose(found, np.sqrt(A), rtol=1e-12)
    assert 4 <= times <= 10


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA", "JAX"])
def test_it_ends_at_the_limit(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    a, (_, count) = roots(limit=2)
    assert pytensor.function([a], count, mode=mode)(A) == 2.0


def test_it_has_no_gradient():
    a, (x, _) = roots()
    (gradient,) = pt.grad(x.sum() + a.sum(), [a])
    np.testing.assert_array_equal(gradient.eval({a: A}), 1.0)


def test_what_a_loop_takes_from_outside():
    x, y, z = pt.scalars("x", "y", "z")
    fixed = pt.exp(y)
    assert set(outside([x * fixed + z], [x])) == {fixed, z}
