"""What the base of the Ops takes from a signature."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import DisconnectedInputError

import pymc_scalable_gp as sgp
from pymc_scalable_gp.ops._base import GufuncOp


class Outer(GufuncOp):
    """``out_tij = a_i b_j`` for each of `count` copies; the places of b are whole numbers."""

    __props__ = ("count",)
    gufunc_signature = "(n),(m)->(t,n,m),(m)"
    discrete = (1,)

    def __init__(self, count):
        self.count = count

    def lengths(self):
        return {"t": self.count}

    def perform(self, node, inputs, output_storage):
        a, b = inputs
        output_storage[0][0] = np.stack([np.outer(a, b)] * self.count).astype("float64")
        output_storage[1][0] = b.astype("float64")

    def pullback(self, inputs, outputs, cotangents):
        return [(cotangents[0].sum(axis=0) * inputs[1]).sum(axis=1)]


def test_types_and_static_shapes():
    node = Outer(2)(pt.fvector(), pt.tensor(dtype="int8", shape=(3,)))[0].owner
    assert [x.dtype for x in node.inputs] == ["float64", "int64"]
    assert [x.dtype for x in node.outputs] == ["float64", "float64"]
    assert [x.type.shape for x in node.outputs] == [(2, None, 3), (3,)]


def test_shapes_without_the_op():
    a, b = pt.dvector(), pt.lvector()
    found = [output.shape for output in Outer(2)(a, b)]
    # The mode with canonical forms, which its name does not have in these tests.
    mode = pytensor.compile.mode.FAST_COMPILE
    function = pytensor.function([a, b], found, mode=mode)
    assert not [n for n in function.maker.fgraph.apply_nodes if isinstance(n.op, Outer)]
    shapes = function(np.zeros(4), np.zeros(5, dtype=int))
    assert [tuple(shape) for shape in shapes] == [(2, 4, 5), (5,)]


def test_the_whole_numbers_are_disconnected():
    a, b = pt.dvector(), pt.dvector()
    value = Outer(2)(a, b)[0].sum()
    with pytest.raises(DisconnectedInputError):
        pt.grad(value, b)
    slope = pt.grad(value, a).eval({a: np.ones(2), b: np.array([1.0, 4.0])}, mode="FAST_COMPILE")
    np.testing.assert_array_equal(slope, [10.0, 10.0])


class Product(GufuncOp):
    """``A x``, for a vector or a matrix x."""

    def signature(self, inputs):
        return "(n,m),(m)->(n)" if inputs[1].ndim == 1 else "(n,m),(m,k)->(n,k)"

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0] @ inputs[1]


@pytest.mark.parametrize("shape", [(3,), (3, 4)])
def test_a_signature_of_the_inputs(shape):
    A, x = np.ones((2, 3)), np.ones(shape)
    out = Product()(A, x)
    assert out.type.shape == (2, *shape[1:])
    np.testing.assert_array_equal(out.eval(mode="FAST_COMPILE"), A @ x)


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        ((np.ones(3), np.ones(3)), r"Product needs inputs of shapes \(n, m\), \(m\); got 1, 1 dim"),
        ((np.ones((2, 3)), np.ones(())), r"shapes \(n, m\), \(m, k\); got 2, 0 dimensions"),
        ((np.ones((2, 3)), np.ones(4)), r"shapes \(n, m\), \(m\); got m = 3 and 4"),
    ],
)
def test_refuses(inputs, match):
    with pytest.raises(TypeError, match=match):
        Product()(*inputs)


def test_refuses_another_number_of_inputs():
    with pytest.raises(TypeError, match=r"Outer needs inputs of shapes \(n\), \(m\); got 1 dim"):
        Outer(2)(np.ones(3))


def test_what_has_no_second_derivative_says_what_works():
    x = pt.matrix()
    terms = [
        Product()(x, np.ones(3)).sum(),
        pt.grad(sgp.ops.khatri_rao_features(x, np.array([[0, 1]])).sum(), x).sum(),
        pt.grad(sgp.ops.lowrank_logp(x, 1.0, np.ones(3)).logp, x).sum(),
        pt.grad(sgp.ops.cubic_interpolation(x[0], np.ones((5, 1))).sum(), x).sum(),
    ]
    for term in terms:
        with pytest.raises((NotImplementedError, ValueError), match="take differences of the gradient"):
            pt.grad(term, x)
