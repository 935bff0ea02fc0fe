"""The mode for functions that are called a few times."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from threading import Barrier

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from numpy.testing import assert_array_equal
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import FAST_COMPILE, Mode, optdb
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.scalar.basic import Clip, Second
from pytensor.scalar.math import Log1mexp, Softplus, TriGamma

from pymc_scalable_gp.utils.compiled import (
    FEW_CALLS,
    FLATTENING,
    IN_PYTHON,
    TRYING,
    check_labels,
    check_names,
    compiled,
    evaluate_at,
    misfit,
    model_inputs,
    point_values,
)

VALUES = np.array([np.nan, -np.inf, -2.0, 0.0, 0.5, 3.0, np.inf])


@pytest.mark.parametrize("bounds", [(0.0, np.inf), (-1.0, 1.0), (-np.inf, 2.0)])
def test_clip_runs_as_maximum_and_minimum(bounds):
    """A thousand times faster in Python; the same values and gradient, NaN included."""
    x = pt.vector(dtype="float64")
    clipped = pt.clip(x, *bounds)
    outputs = [clipped, pt.grad(clipped.sum(), x)]
    fast = pytensor.function([x], outputs, mode=FEW_CALLS)
    used = [getattr(n.op, "scalar_op", None) for n in fast.maker.fgraph.apply_nodes]
    assert not any(isinstance(op, Clip) for op in used)
    for found, expected in zip(
        fast(VALUES), pytensor.function([x], outputs, mode="FAST_COMPILE")(VALUES), strict=True
    ):
        assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("function", "kind"), [(pt.softplus, Softplus), (pt.log1mexp, Log1mexp), (pt.tri_gamma, TriGamma)]
)
def test_functions_of_entries_run_as_functions_of_arrays(function, kind):
    """Log densities of classes and censored times have them."""
    x = pt.vector(dtype="float64")
    outputs = [function(x), pt.grad(function(x).sum(), x)]
    fast = pytensor.function([x], outputs, mode=FEW_CALLS)
    used = [getattr(n.op, "scalar_op", None) for n in fast.maker.fgraph.apply_nodes]
    assert not any(isinstance(op, kind) for op in used)
    slow = pytensor.function([x], outputs, mode=IN_PYTHON)
    for values in (VALUES, np.array([-800.0, -40.0, -20.0, -0.7, -0.69, -1e-9, 17.0, 19.0, 34.0, 800.0])):
        with np.errstate(all="ignore"):
            for found, expected in zip(fast(values), slow(values), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize("shape", [(3, 4), (3, 1), (1, 4), (1, 1)])
def test_filling_copies_no_entry_by_itself(shape):
    like, value = pt.matrix(dtype="float64"), pt.matrix(dtype="float64", shape=tuple(
        1 if n == 1 else None for n in shape
    ))  # fmt: skip
    filled = pt.second(like, value)
    fast = pytensor.function([like, value], filled, mode=FEW_CALLS)
    assert not any(
        isinstance(getattr(n.op, "scalar_op", None), Second) for n in fast.maker.fgraph.apply_nodes
    )
    values = np.arange(float(np.prod(shape))).reshape(shape)
    assert_array_equal(fast(np.ones((3, 4)), values), np.broadcast_to(values, (3, 4)))
    narrow = pytensor.function([value, like], pt.second(value, like), mode=FEW_CALLS)
    assert_array_equal(narrow(values, np.ones((3, 4))), np.ones((3, 4)))


def test_whole_numbers_are_clipped_and_filled_too():
    x = pt.lvector()
    outputs = [pt.clip(x, 0, 2), pt.second(x, pt.constant([7])), pt.softplus(x)]
    fast = pytensor.function([x], outputs, mode=FEW_CALLS)
    used = {type(getattr(n.op, "scalar_op", None)) for n in fast.maker.fgraph.apply_nodes}
    assert not used & {Clip, Second, Softplus}
    clipped, filled, soft = fast(np.array([-1, 1, 3]))
    assert_array_equal(clipped, [0, 1, 2])
    assert_array_equal(filled, [7, 7, 7])
    np.testing.assert_allclose(soft, np.logaddexp(0.0, [-1.0, 1.0, 3.0]), rtol=1e-14)


def test_sums_of_many_terms_run_in_python():
    """Which NumPy's functions of at most 32 operands could not, once a sum is one operation."""
    terms = [pt.vector() for _ in range(40)]
    for join, expected in ((pt.add, 40.0), (pt.mul, 1.0)):
        total, ones = reduce(join, terms), [np.ones(2)] * 40
        with pytest.raises(NotImplementedError, match="32 operands"):
            compiled(terms, total, mode=FAST_COMPILE)(*ones)
        found = compiled(terms, total, mode=FAST_COMPILE.excluding(*FLATTENING))(*ones)
        np.testing.assert_allclose(found, expected)
    for mode in (IN_PYTHON, FEW_CALLS):
        assert {*FLATTENING, *TRYING} <= set(mode.provided_optimizer.exclude)


def test_rewrites_that_are_left_out_are_pytensors():
    """Names that PyTensor does not have leave nothing out, and compiling waits again."""
    for name in (*FLATTENING, *TRYING):
        assert name in optdb["canonicalize"]


def test_softmax_and_its_like_run_by_their_graphs():
    """PyTensor would compile each in C, also in a loop's steps; the values and gradients are the same."""
    x = pt.vector(dtype="float64")

    def total(v):
        return pt.logsumexp(v) + pt.special.softmax(v)[0]

    steps = pytensor.scan(total, sequences=[pt.stack([x, 2.0 * x])], return_updates=False)
    outputs = [total(x), pt.grad(total(x), x), steps]
    fast = pytensor.function([x], outputs, mode=FEW_CALLS)
    assert not [n for n in all_nodes(fast.maker.fgraph) if isinstance(n.op, OpFromGraph)]
    values = np.array([-1.0, 0.5, 700.0])
    slow = pytensor.function([x], outputs, mode="FAST_COMPILE")
    assert [n for n in all_nodes(slow.maker.fgraph) if isinstance(n.op, OpFromGraph)]
    for found, expected in zip(fast(values), slow(values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_one_for_each_of_many_runs_by_its_graph_too():
    """Its function would be one for all threads, which take one another's results."""
    x = pt.matrix(dtype="float64")
    v = pt.vector(dtype="float64")
    (inner,) = vectorize_graph([pt.diag(v) @ pt.diag(v)], {v: x})
    outputs = [inner, pt.grad((inner**2).sum(), x)]
    fast = pytensor.function([x], outputs, mode=FEW_CALLS)
    assert not [n for n in all_nodes(fast.maker.fgraph) if _holds_a_graph(n.op)]
    slow = pytensor.function([x], outputs, mode="FAST_COMPILE")
    assert [n for n in all_nodes(slow.maker.fgraph) if _holds_a_graph(n.op)]
    values = np.array([[-1.0, 0.5, 2.0], [3.0, 1.0, 0.0]])
    for found, expected in zip(fast(values), slow(values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def _holds_a_graph(op):
    return isinstance(getattr(op, "core_op", op), OpFromGraph)


def test_loops_keep_their_last_state_alone():
    """A search under a likelihood of 1e5 rows would hold 100 copies of each of its vectors."""
    x = pt.vector(dtype="float64")
    steps = pytensor.scan(lambda v: 0.5 * v, outputs_info=[x], n_steps=50, return_updates=False)
    # With the canonical forms that tests leave out elsewhere.
    query = FEW_CALLS.provided_optimizer
    mode = Mode("py", RewriteDatabaseQuery(include=query.include, exclude=FLATTENING))
    found = compiled([x], steps[-1], mode=mode)
    values = np.ones(10_000)
    found(values)
    tracemalloc.start()
    found(values)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 * values.nbytes


def test_threads_that_compile_leave_the_users_mode_as_it_is():
    before = pytensor.config.mode
    x = pt.vector("x")
    together = Barrier(4)

    def compile_some(_):
        together.wait()
        return [compiled([x], pt.exp(x).sum() + k)(np.zeros(2)) for k in range(5)]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(compile_some, range(4)):
            np.testing.assert_allclose(found, 2.0 + np.arange(5))
    assert pytensor.config.mode == before


def test_a_shape_that_is_none_of_a_variable():
    """By its type, or the present length of shared data."""
    with pm.Model():
        known = pm.Normal("known", shape=(3, 1))
        data = pm.Data("data", np.zeros(4))
        by_data = pm.Normal("by_data", shape=data.shape)
    assert misfit(known, (3, 1)) is None
    for shape in ((), (3,), (1, 3), (3, 2), (3, 1, 1)):
        assert misfit(known, shape) == (3, 1)
    for _ in range(2):
        n = len(data.get_value())
        assert misfit(by_data, (n,)) is None
        assert misfit(by_data, (n - 1,)) == (n,)
        data.set_value(np.zeros(6))


@pytest.mark.parametrize(
    ("own", "given", "words"),
    [
        ("abc", "abc", None),
        ("abc", "cab", "v has c at place 0 of d, the model a: sort it by"),
        ("abc", "acb", "v has c at place 1 of d, the model b: sort it"),
        ("abc", "abx", "v has x at place 2 of d, the model c: is it of this model"),
        ("abc", range(3), None),  # no labels
        ([2, 0, 1], [0, 1, 2], "v has 0 at place 0 of d, the model 2: sort it"),
        ([5, 6, 7], [0, 1, 2], None),
        ([5, 6, 7], [1, 2, 3], "v has 1 at place 0 of d, the model 5: is it of this model"),
        ([0, 1, 2], [0.0, 1.0, 2.0], None),
        ([0, 1, 2], ["0", "1", "2"], None),  # from a file
    ],
)
def test_labels_in_another_order(own, given, words):
    value = xr.DataArray(np.zeros((3, 2)), dims=("d", "free"), coords={"d": list(given)}, name="v")
    with pm.Model(coords={"d": list(own)}) as model:
        pass
    if words is None:
        check_labels("v", value, model)
    else:
        with pytest.raises(ValueError, match=words):
            check_labels("v", value, model)
    check_labels("v", value.drop_vars("d"), model)
    check_labels("v", value.rename(d="of no model"), model)
    check_labels("v", np.zeros(3), model)


def test_values_of_a_point():
    with pm.Model() as model:
        a, b = pm.Normal("a", initval=7.0), pm.HalfNormal("b", shape=2)
        pm.Deterministic("shown", a)
    found = point_values([b, a], {"b": [1, 2]}, model, fill=True)
    assert_array_equal(found[0], [1.0, 2.0])
    assert (found[0].dtype, found[1]) == (b.dtype, 7.0)
    for point, words in [
        ({"b": [1, 2]}, r"point lacks a value for a; it holds \['b'\]"),
        ({"a": 1.0, "b": [1, 2, 3]}, r"point has b of shape \(3,\); the model's has shape \(2,\)"),
        ({"a": 1.0, "b_log__": [0, 0]}, "point has b_log__, unconstrained: give b itself"),
        (
            {"a": 1.0, "bb": [0, 0]},
            r"point has bb \(is b meant\?\), which the model does not know.* are a, b$",
        ),
        ({"a": 1.0, "zzz": 0.0}, "point has zzz, which the model does not know"),
    ]:
        with pytest.raises(ValueError, match=words):
            point_values([a, b], point, model, fill="lacks" not in words)
    check_names({"shown": 1.0, "a": 1.0}, [b], model)
    check_names({"b": [1.0, 2.0], "b_log__": [0.0, 0.7]}, [a], model)  # both, as of pm.find_MAP
    for name in ("zzz", "aa"):  # of what is not made yet; a is there
        check_names({name: 1.0}, [b], model, whole=False)
    with pytest.raises(ValueError, match="is b meant"):
        check_names({"bb": 1.0}, [b], model, whole=False)


def test_inputs_are_in_the_order_of_their_names():
    with pm.Model() as model:
        c, a, b = (pm.Normal(name) for name in "cab")
    assert model_inputs([b * c, a], model) == [a, b, c]


def test_what_depends_on_nothing_has_its_value_at_each_point():
    assert [float(v) for (v,) in evaluate_at([pt.constant(2.0)], [None, {}, {"a": 1.0}])] == [2.0] * 3


def all_nodes(graph):
    """Nodes of a graph and of its loops' steps."""
    for node in graph.apply_nodes:
        yield node
        if hasattr(node.op, "fgraph") and not isinstance(node.op, OpFromGraph):
            yield from all_nodes(node.op.fgraph)
