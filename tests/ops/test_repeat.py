"""Loops: until a state no longer changes, or over parts; in Python, in Numba and in JAX."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import CheckParameterValue
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Constant
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import graph_inputs

from pymc_scalable_gp.ops import _numba
from pymc_scalable_gp.ops._by_ops import BY_OPS, MachineCode
from pymc_scalable_gp.ops.repeat import Repeat, by_parts, outside, repeat
from pymc_scalable_gp.ops.stacked_product import StackedProduct, stacked_product
from pymc_scalable_gp.utils import threads

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


def test_what_is_one_number_outside_is_known_inside():
    """Rewrites of a step see zeros as such, whatever their length, and take the other branch's NaN away."""
    x, given = pt.vectors("x", "given")
    zeros = pt.switch(x > 0.0, pt.ones_like(given), pt.zeros_like(given))
    (found,) = repeat([x], [zeros * pt.log(x)], [given], pt.constant(False), 1)
    step = found.owner.op.body[0]
    rewritten = rewrite_graph(step, include=("canonicalize",))
    value = rewritten.eval(
        {v: np.array([-1.0, 2.0]) for v in graph_inputs([rewritten]) if not isinstance(v, Constant)},
        mode="FAST_COMPILE",
    )
    np.testing.assert_array_equal(value, [0.0, np.log(2.0)])


def halving(limit=3):
    """Function of x, halved and moved by one in each step, whose state is as long as x."""
    x = pt.vector("x", dtype="float64")
    state = x.type()
    (found,) = repeat([state], [0.5 * state + 1.0], [x[::-1]], pt.constant(False), limit)
    return pytensor.function([x], found, mode="NUMBA")


def test_other_processes_find_a_step_on_disk(monkeypatch):
    """Whatever the file that PyTensor wrote it to."""
    on_disk, compile_apart = [], _numba.compile_apart

    def noted(*args):
        call, known = compile_apart(*args)
        on_disk.append(known)
        return call, known

    monkeypatch.setattr(_numba, "compile_apart", noted)
    for _ in range(2):
        monkeypatch.setattr(_numba, "_CALLED", {})  # as in a new process
        np.testing.assert_allclose(halving()(np.array([8.0, 0.0])), [1.75, 2.75])
    assert len(on_disk) == 2
    assert on_disk[1]


def test_it_has_no_gradient():
    a, (x, _) = roots()
    (gradient,) = pt.grad(x.sum() + a.sum(), [a])
    np.testing.assert_array_equal(gradient.eval({a: A}), 1.0)
    node = x.owner
    for each in node.op.pullback(node.inputs, node.outputs, node.outputs):
        assert isinstance(each.type, DisconnectedType)


def test_a_step_keeps_the_state_s_type():
    x = pt.vector(dtype="float64", shape=(3,))
    for new in (pt.outer(x, x), x.astype("complex128")):
        with pytest.raises(TypeError):
            repeat([x], [new], [pt.ones(3)], pt.constant(True), 2)
    a = pt.vector(dtype="float64")
    (found,) = repeat([x], [a + x.sum()], [pt.ones(3)], pt.constant(True), 2)
    function = pytensor.function([a], found, mode="FAST_COMPILE")
    np.testing.assert_array_equal(function(np.zeros(3)), [3.0, 3.0, 3.0])
    with pytest.raises(AssertionError, match="shape"):
        function(np.zeros(2))


def test_a_step_is_compiled_once_for_all_functions(monkeypatch):
    """A density, its gradient, what finds the start, and each thread's copy have the same loop."""
    made, compiled = [], threads.compiled

    def counted(*args, **options):
        made.append(args)
        return compiled(*args, **options)

    monkeypatch.setattr(threads, "compiled", counted)
    a, (x, _) = roots()
    one, twice = (pytensor.function([a], k * x, mode="FAST_COMPILE") for k in (1.0, 2.0))
    assert not made
    for found in (one(A), 0.5 * twice(A), one.copy()(A)):
        np.testing.assert_allclose(found, np.sqrt(A), rtol=1e-9)
    assert len(made) == 1


def test_the_ops_of_steps_are_machine_code_where_those_outside_are():
    """In loops within loops too; another process compiles its own steps."""
    A, X, Y = (pt.tensor3(name, shape=(1, 2, 2)) for name in "AXY")
    (inner,) = repeat([Y], [stacked_product(A, Y)], [X], pt.constant(False), 2)
    out = repeat([X], [inner], [pt.ones((1, 2, 2))], pt.constant(False), 3)[0]
    rng, halves = np.random.default_rng(0), np.full((1, 2, 2), 0.5)
    for mode, kind in ((BY_OPS, MachineCode), (None, StackedProduct)):
        function = pytensor.function([A], out, mode=mode)
        np.testing.assert_allclose(function(halves), 1.0)
        a = rng.uniform(size=(1, 2, 2))
        expected = np.linalg.matrix_power(a[0], 6) @ np.ones((2, 2))
        np.testing.assert_allclose(function(a)[0], expected, rtol=1e-12)
        (outer,) = loops(function)
        (within,) = loops(outer._step.compiled)
        steps = within._step.compiled.maker.fgraph.apply_nodes
        kinds = [type(node.op) for node in steps]
        assert [each for each in kinds if each in (MachineCode, StackedProduct)] == [kind]
    assert not pickle.loads(pickle.dumps(out.owner.op))._in_modes


def loops(function):
    """The loops of a compiled function."""
    return [node.op for node in function.maker.fgraph.apply_nodes if isinstance(node.op, Repeat)]


def test_what_a_loop_takes_from_outside():
    x, y, z = pt.scalars("x", "y", "z")
    fixed = pt.exp(y)
    assert set(outside([x * fixed + z], [x])) == {fixed, z}


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_a_transpose_is_taken_as_it_lies_in_memory(mode):
    """A large matrix is not copied into the other order."""
    stored, state = pt.dmatrix("stored"), pt.dvector("state")
    new = stored.T @ state
    assert outside([new], [state]) == [stored]
    (found,) = repeat([state], [new], [pt.ones(3)], pt.constant(False), 2)
    B = np.random.default_rng(0).standard_normal((3, 3))
    value = pytensor.function([stored], found, mode=mode)(B)
    np.testing.assert_allclose(value, B.T @ B.T.sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_a_condition_is_taken_as_the_tensor_that_holds_it(mode):
    """As of ``pm.Censored`` with two bounds, which checks their order at each step."""
    bound, state = pt.dscalar("bound"), pt.dvector("state")
    new = CheckParameterValue("bound < 3")(2.0 * state, bound < 3.0)
    (found,) = repeat([state], [new], [pt.ones(3)], pt.constant(False), 2)
    np.testing.assert_array_equal(pytensor.function([bound], found, mode=mode)(1.0), np.full(3, 4.0))


def test_parts_are_those_of_the_whole():
    """Values, and gradients in what all parts share and in the parts; a draw outside is made once."""
    rows, w = np.arange(12.0).reshape(3, 4), np.array([0.5, -1.0, 2.0, 0.1])
    parts, weights = pt.matrix("parts", shape=(3, 4)), pt.vector("weights", shape=(4,))
    part = pt.vector("part", shape=(4,))
    rng = pytensor.shared(np.random.default_rng(1))
    _, noise = pt.random.normal(rng=rng, return_next_rng=True)
    single = [pt.exp(0.1 * part) @ weights, noise + part.sum()]
    values, noisy = by_parts(single, [part], [parts])
    whole = pt.exp(0.1 * parts) @ weights
    costs = [(found**2).sum() for found in (values, whole)]
    outputs = [out for each in costs for out in (each, *pt.grad(each, [weights, parts]))]
    *found, drawn = pytensor.function([weights, parts], [*outputs, noisy])(w, rows)
    for a, b in zip(found[:3], found[3:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert np.ptp(drawn - rows.sum(axis=1)) < 1e-12
