"""Sealed functions: compiled once, apart from their callers, for all layouts."""

import subprocess
import sys

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numba import types
from numba.core import event
from pytensor.link.numba.dispatch import basic as nb

import pymc_scalable_gp as sgp
from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops._numba import _announce, contiguous, sealed


class Scaled(GufuncOp):
    gufunc_signature = "(n,m),()->(n,m)"

    def perform(self, node, inputs, output_storage):
        raise NotImplementedError


NODE = Scaled().make_node(pt.matrix(dtype="float64"), pt.scalar(dtype="float64"))


@nb.numba_njit
def scaled(a, factor):
    if a.shape[0] == 0:
        raise ValueError("no rows")
    out = np.empty(a.size)
    for i, x in enumerate(a.ravel()):
        out[i] = x * factor.item()
    return out.reshape(a.shape)


def seal(*identity, function=scaled, strided=()):
    return sealed(NODE.op, NODE, function, ("test", *identity), strided)


def callable_(layout="C"):
    function = seal("layout", strided=(0,) if layout == "A" else ())

    @nb.numba_njit(final_function=True)
    def outer(a, factor):
        return function(a, factor)

    return outer


class Compilations(event.Listener):
    def __init__(self):
        self.names = []

    def on_start(self, found):
        self.names.append(found.data["dispatcher"].py_func.__name__)

    def on_end(self, found):
        pass


@pytest.mark.parametrize("layout", ["C", "A"])
def test_every_layout_is_read_right(layout):
    a = np.arange(12.0).reshape(3, 4)
    fixed = a[::2, ::-1]
    fixed.flags.writeable = False
    function, factor = callable_(layout), np.asarray(2.0)
    for value in (a, a.T, fixed, a[:, 1:3], a[:1], np.asfortranarray(a), np.zeros((3, 0))):
        np.testing.assert_array_equal(function(value, factor), 2.0 * value)


def test_a_scalar_may_come_out_of_a_longer_array():
    """As a loop over a batch passes it: an array of no dimensions whose layout is not told."""
    function = seal("scalar")
    compiled = nb.numba_njit(lambda a, factor: function(a, factor), final_function=True)
    compiled.compile((types.Array(types.float64, 2, "C"), types.Array(types.float64, 0, "A")))
    np.testing.assert_array_equal(compiled(np.ones((2, 2)), np.asarray(3.0)), 3.0)


def test_callers_compile_without_what_they_call():
    function = seal("once")
    with event.install_listener("numba:compile", Compilations()) as seen:
        for _ in range(2):
            outer = nb.numba_njit(lambda a, factor: function(a, factor), final_function=True)
            outer(np.ones((2, 2)), np.asarray(3.0))
    assert seen.names.count("scaled") == 1  # the stub
    assert "ravel" not in "".join(seen.names)


def test_contiguous_copies_only_what_is_not():
    @numba.njit
    def address(a):
        return contiguous(a).ctypes.data - a.ctypes.data

    a = np.arange(12.0).reshape(3, 4)
    assert address(a) == address(np.asfortranarray(a).T) == 0
    assert address(a.T) != 0
    assert address(np.broadcast_to(a[:1], (3, 4))) != 0


def test_compilation_is_announced_once(caplog, tmp_path):
    _announce.cache_clear()
    with caplog.at_level("INFO", logger="pymc"):
        for name in ("one", "other"):
            seal(name, str(tmp_path))  # not on disk
    assert [r.message for r in caplog.records if "Compiling" in r.message] == [
        "Compiling machine code, once per machine: up to a minute"
    ]


def test_errors_pass():
    with pytest.raises(ValueError, match="no rows"):
        callable_()(np.empty((0, 3)), np.asarray(1.0))


def test_machine_code_never_gets_an_array_of_another_kind():
    with pytest.raises(numba.TypingError, match="takes"):
        callable_()(np.ones((2, 2), dtype=int), np.asarray(1.0))


PROGRAM = """
import numpy as np, pytensor.tensor as pt, pytensor
from pymc_scalable_gp.ops.vecchia_whiten import VecchiaWhiten
V, A, L, near = pt.matrix(), pt.tensor3(), pt.tensor3(), pt.lmatrix()
f = pytensor.function([V, A, L, near], VecchiaWhiten()(V, A, L, near), mode="NUMBA")
out = f(np.ones((4, 1)), np.full((2, 2, 1), .5), np.tile(np.eye(2), (2, 1, 1)), np.array([[-1], [0]]))
np.testing.assert_allclose(out[:, 0], [1, 1, .5, .5])
"""


@pytest.mark.slow
def test_other_processes_load_it(tmp_path):
    flags = {"PYTENSOR_FLAGS": f"base_compiledir={tmp_path}", "PATH": ""}
    for _ in range(2):  # compiled, then read from disk, with the callers that were kept there too
        subprocess.run([sys.executable, "-c", PROGRAM], check=True, env=flags, timeout=300)


def test_equal_functions_share_their_machine_code():
    """Else one that is collected would leave its symbol to what the other's callers link to."""
    assert seal("shared") is seal("shared")


def test_a_closure_must_not_hold_a_compiled_function():
    """Numba finds machine code on disk by what a closure holds, and a dispatcher differs by process."""
    held = nb.numba_njit(lambda a: a)

    @nb.numba_njit
    def body(a, factor):
        return held(a)

    with pytest.raises(TypeError, match="body holds a compiled function"):
        seal("closure", function=body)


def test_python_calls_machine_code_with_any_array():
    """Read-only, broadcast, in any order, and of lengths that fit: those of others are refused."""
    A, B = pt.tensor3("A"), pt.tensor3("B")
    function = pytensor.function([A, B], sgp.ops.stacked_product(A, B), mode=BY_OPS)
    (op,) = (node.op.op for node in function.maker.fgraph.apply_nodes)
    a, b = np.arange(12.0).reshape(2, 2, 3), np.arange(18.0).reshape(2, 3, 3)
    fixed = b.copy()
    fixed.flags.writeable = False
    for left, right in ((a, fixed), (a[::-1], b.swapaxes(1, 2)), (a, np.broadcast_to(b[:1], b.shape))):
        np.testing.assert_allclose(function(left, right), left @ right, rtol=1e-14)
    with pytest.raises(ValueError, match=f"{type(op).__name__} needs inputs of shapes"):
        function(a, b[:, :2])


def test_between_the_ops_nothing_is_compiled():
    """Another model's function finds the machine code of the Ops, and needs none of its own."""
    A, B = pt.tensor3("A"), pt.tensor3("B")
    a = np.ones((2, 2, 2))
    for factor in (2.0, 3.0):
        with event.install_listener("numba:compile", Compilations()) as seen:
            out = pt.exp(factor * sgp.ops.stacked_product(A, B)).sum(axis=0)
            pytensor.function([A, B], out, mode=BY_OPS)(a, a)
    assert not seen.names
