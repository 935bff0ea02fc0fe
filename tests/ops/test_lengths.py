"""Inputs whose lengths do not fit together are refused in words, whatever the back-end."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from all_ops import all_ops, shapes_of, tensors_of
from pytensor.link.numba.dispatch import basic as nb

import pymc_scalable_gp as sgp
from pymc_scalable_gp.ops import _numba
from pymc_scalable_gp.ops._jax import jax, jax_funcify


def misfits(op):
    """Inputs of which one is longer by one than another of the same length, and both lengths."""
    shapes, places = shapes_of(op)
    dtypes = ["int64" if i in op.discrete else "float64" for i in range(len(shapes))]

    def misfit(i, axis, name, right, first=False):
        wrong = list(shapes)
        wrong[i] = (*wrong[i][:axis], wrong[i][axis] + 1, *wrong[i][axis + 1 :])
        words = (right + 1, right) if first else (right, right + 1)
        values = [np.zeros(shape, dtype) for shape, dtype in zip(wrong, dtypes, strict=True)]
        return values, type(op).__name__, name, words

    for name, found in places.items():
        for i, axis in found if len(found) > 1 or name in op.lengths() else ():
            first = name not in op.lengths() and (i, axis) == found[0]
            yield misfit(i, axis, name, shapes[i][axis], first)
    for name, (other, more) in op.sums().items():
        if name in places and len(places[other]) == 1:
            i, axis = places[other][0]
            yield misfit(i, axis, name, shapes[i][axis] + more)


# Of some no two inputs share a length.
OPS = [found for found in all_ops() if any(misfits(*found.values))]


def test_all_ops_are_here():
    assert len(OPS) > 25


def check(op, function, numbers=True):
    for values, kind, name, (first, other) in misfits(op):
        words = f"got {name} = {first} and {other}" if numbers else rf"arrays differ in .*\b{name}\b"
        with pytest.raises(ValueError, match=f"{kind} needs .*{words}"):
            function(*values)


@pytest.mark.parametrize("op", OPS)
def test_python(op):
    inputs = tensors_of(op)
    check(op, pytensor.function(inputs, op(*inputs), mode="FAST_COMPILE", on_unused_input="ignore"))


@pytest.mark.parametrize(
    "op",
    [
        pytest.param(*op.values, id=op.id, marks=pytest.mark.slow if i % 8 else ())
        for i, op in enumerate(OPS)
    ],
)
def test_numba(op):
    """Without what the check stands before, which would take long to compile."""
    inputs = tensors_of(op)

    @nb.numba_njit
    def body(*arrays):
        return 0.0

    function = _numba.caller(op, op.make_node(*inputs), body)
    check(op, nb.numba_njit(final_function=True)(lambda *arrays: function(*arrays)), numbers=False)


@pytest.mark.skipif(jax is None, reason="JAX is not installed")
@pytest.mark.parametrize("op", OPS)
def test_jax(op):
    check(op, jax_funcify(op, node=op.make_node(*tensors_of(op))))


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA", "JAX"])
def test_in_a_graph(mode):
    if mode == "JAX" and jax is None:
        pytest.skip("JAX is not installed")
    a, b, c = pt.tensor3("a"), pt.tensor3("b"), pt.vector("c")
    product = pytensor.function([a, b], sgp.ops.stacked_product(a, b), mode=mode)
    a_, b_ = np.ones((1, 2, 3)), np.ones((1, 2, 2))
    with pytest.raises((ValueError, TypeError, AssertionError)):  # PyTensor's own words
        product(a_, b_)
    np.testing.assert_array_equal(product(a_, np.ones((1, 3, 2))), np.full((1, 2, 2), 3.0))
    density = sgp.ops.gaussian_logp(a[0], pt.ones(a.shape[1]), c)
    density = pytensor.function([a, c], density, mode=mode)
    words = "arrays differ in n" if mode == "NUMBA" else "got n = 3 and 2"
    with pytest.raises(ValueError, match=f"GaussianLogp needs .*{words}"):
        density(np.eye(3)[None], np.zeros(2))
    assert np.isfinite(density(np.eye(3)[None], np.zeros(3)))
