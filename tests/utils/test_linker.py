"""Graphs as Python functions: what PyTensor's own loop over operations gives, and refuses."""

import tracemalloc
import warnings
import weakref

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_array_equal
from pytensor.compile.mode import Mode
from pytensor.conditional.op import ifelse
from pytensor.tensor.elemwise import Elemwise

from pymc_scalable_gp.utils.compiled import IN_PYTHON
from pymc_scalable_gp.utils.linker import PythonLinker, _function

WRITTEN = Mode(PythonLinker(), IN_PYTHON.provided_optimizer)
x, y = pt.vector("x", dtype="float64"), pt.vector("y", dtype="float64")
A, row, z = pt.matrix("A", dtype="float64"), pt.row("row", dtype="float64"), pt.dscalar("z")
i, b = pt.lvector("i"), pt.bvector("b")
VALUES = {
    "x": np.array([-1.0, 0.0, 2.0]), "y": np.array([np.nan, 3.0, np.inf]), "z": np.array(0.5),
    "A": np.arange(6.0).reshape(2, 3), "row": np.array([[1.0, 2.0, 4.0]]), "i": np.array([1, 3, 7]),
    "b": np.array([1, 100, 120], dtype="int8"),
}  # fmt: skip
GRAPHS = {
    "vectors": [pt.exp(x) * y, pt.log(x), x / y],
    "numbers": [z + 1.0, pt.sqrt(z), z > 0.2],
    "numbers and vectors": [x * z, 2.0 ** (x - z)],
    "rows": [A + row, row * row, A * z],
    "whole numbers": [i / 2, i // 2, b / b, b + b, pt.sqrt(b)],
    "kinds": [x.astype("float32"), (x > 0).astype("int8"), i.astype("float64"), pt.invert(x > 0)],
    "many operands": [pt.add(x, y, x, 1.0), pt.mul(x, x, y, x)],
    "choices": [pt.switch(x > 0, x, y), pt.switch(z > 0, z, -z), pt.where(x > 0, 1, 2)],
    "other operations": [A.sum(axis=0), A[1], A[:, ::-1].T, pt.dot(A, x), pt.concatenate([x, y])],
    "branches": [ifelse(z > 0, x, y), ifelse(z > 1, x + 1.0, y)],
    "loops": [pytensor.scan(lambda v: 0.5 * v, None, [x], n_steps=3, return_updates=False)],
    "no operations": [x, pt.constant(2.0), x],
    "several results": list(pt.linalg.qr(A)),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_the_same_values(name):
    outputs = GRAPHS[name]
    inputs = [x, y, z, A, row, i, b]
    found, expected = (
        pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")(
            *(VALUES[v.name] for v in inputs)
        )
        for mode in (WRITTEN, IN_PYTHON)
    )
    for each, other in zip(found, expected, strict=True):
        assert type(each) is type(other)
        assert each.dtype == other.dtype
        assert_array_equal(each, other)


def test_elementwise_operations_are_numpys():
    """Those of one kind of lengths; of others, and what NumPy lacks, PyTensor's own."""
    u, v = pt.lvector(), pt.vector(dtype="float64")
    for graph, plain in ((u * v, 1), (pt.exp(v), 1), (A + row, 0), (pt.gammaln(v), 1), (pt.softplus(v), 0)):
        fgraph = pytensor.function(
            [A, row, u, v], graph, mode=WRITTEN, on_unused_input="ignore"
        ).maker.fgraph
        nodes = [n for n in fgraph.toposort() if isinstance(n.op, Elemwise)]
        assert _function(nodes[-1]).__code__.co_name == "call"
        is_own = _function(nodes[-1]).__qualname__.startswith("_own")
        assert is_own is not bool(plain)


def test_lengths_that_differ_are_refused():
    """NumPy would broadcast an array of one entry."""
    function = pytensor.function([x, y], [x * y], mode=WRITTEN)
    for short in (np.ones(1), np.ones(2)):
        for arrays in ((np.ones(3), short), (short, np.ones(3))):
            with pytest.raises(ValueError, match=r"broadcast"):
                function(*arrays)


def test_there_are_no_warnings_of_arithmetic():
    function = pytensor.function([x], [pt.log(x), 1.0 / x, pt.exp(1e3 * x)], mode=WRITTEN)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        function(VALUES["x"])
        assert set(np.geterr().values()) == {"raise"}


def test_results_are_let_go_of_after_their_last_use():
    """Twenty vectors, of which two are needed at a time."""
    total, long = x, np.ones(200_000)
    for _ in range(20):
        total = pt.cumsum(pt.exp(-total))
    function = pytensor.function([x], total.sum(), mode=WRITTEN)
    function(long)
    tracemalloc.start()
    function(long)
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * long.nbytes
    assert left < 0.5 * long.nbytes


def test_data_that_were_replaced_are_let_go_of():
    """Shared variables are inputs; the function keeps constants alone."""
    data = pytensor.shared(np.zeros(100_000), borrow=True)
    first = weakref.ref(data.get_value(borrow=True))
    function = pytensor.function([], [data + 1.0], mode=WRITTEN)
    function()
    data.set_value(np.ones(3))
    assert_array_equal(function()[0], 2.0)
    assert first() is None


def test_draws_move_a_generator_on():
    rng = pytensor.shared(np.random.default_rng(1))
    after, draw = pt.random.normal(size=3, rng=rng, return_next_rng=True)
    function = pytensor.function([], draw, mode=WRITTEN, updates={rng: after})
    assert not np.array_equal(function(), function())


def test_an_error_is_the_operations_own():
    function = pytensor.function([A], pt.linalg.inv(A), mode=WRITTEN)
    with pytest.raises(np.linalg.LinAlgError):
        function(np.zeros((2, 2)))
