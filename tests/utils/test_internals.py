"""What the package uses of PyTensor, Numba and PyMC without their promise is there, and in one place."""

import ast
import time
from pathlib import Path
from threading import Thread

import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numba.core.codegen import JITCodeLibrary

import pymc_scalable_gp as sgp
from pymc_scalable_gp.ops import _numba
from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.utils import internals

PACKAGE = Path(internals.__file__).parents[1]
PRIVATE = ("numba.core", "llvmlite", "pytensor.link.numba.cache")


@pytest.mark.parametrize("name", internals.NEEDED + internals.COMPILED_APART)
def test_the_installed_releases_have(name):
    assert not internals.missing([name])


def test_missing_names_are_told():
    names = ["numba.core.nowhere:x", "numba.core.cgutils:gone", "numba.core.cgutils:unpack_tuple"]
    assert internals.missing(names) == names[:2]


def test_the_parts_of_kernels():
    one, two = pm.gp.cov.ExpQuad(1, ls=1.0), pm.gp.cov.Matern52(1, ls=1.0)
    for whole in (one + two, one * two, pm.gp.cov.Kron([one, two])):
        assert internals.parts_of(whole) == [one, two]
    X = np.ones((2, 3))
    left, right = internals.own_columns(pm.gp.cov.ExpQuad(3, ls=1.0, active_dims=[1]), X)
    assert left.eval().shape == (2, 1)
    assert right is None


@numba.njit(no_cpython_wrapper=True)
def root(x):
    if x < 0.0:
        raise ValueError("negative", x)
    return np.sqrt(np.full(3, x))


def test_what_is_compiled_as_one_has_machine_code_of_the_whole_alone():
    @numba.njit
    def whole(x):
        return root(x).sum()

    with internals.compiled_as_one():
        assert whole(4.0) == 6.0
    (part,), (code,) = root.overloads.values(), whole.overloads.values()
    assert code.library.is_machine_code
    assert not part.library.is_machine_code
    with pytest.raises(ValueError, match="negative"):
        whole(-1.0)
    assert numba.njit(lambda x: 2.0 * root(x))(4.0).sum() == 12.0  # a part of others, too
    assert part.library.get_pointer_to_function(part.fndesc.llvm_func_name)  # or alone
    assert part.library.is_machine_code


def test_afterwards_numba_compiles_as_before():
    with internals.compiled_as_one():
        pass
    function = numba.njit(lambda x: x + 1)
    assert function(1) == 2
    (code,) = function.overloads.values()
    assert type(code.library) is JITCodeLibrary


def many_cosines(count):
    """Machine code that takes half a second or so for 3e7."""
    last = 0.0
    for _ in range(int(count[0])):
        last = np.cos(last)
    return np.full(1, last)


@pytest.mark.parametrize("apart", [True, False])
def test_machine_code_lets_other_threads_run(apart, monkeypatch):
    monkeypatch.setattr(_numba, "_CALLED", {})
    monkeypatch.setattr(_numba, "can_compile_apart", lambda: apart)
    kinds = (numba.types.Array(numba.types.float64, 1, "C"),)
    with pytensor.config.change_flags(numba__cache=False):
        found = _numba.compiled_once(internals.njit(many_cosines), kinds, ("a test", apart))
        function = getattr(found, "keep", found)
        function(np.ones(1))
    thread = Thread(target=function, args=(np.full(1, 3e7),))
    thread.start()
    ticks = 0
    while thread.is_alive():
        time.sleep(1e-3)
        ticks += 1
    assert ticks > 10  # it would be one: Python would go on where the thread ends


def foreign_private_names(source):
    """Imports of modules or names of other packages that begin with an underscore or are `PRIVATE`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [f"x.{node.attr}"] if isinstance(node, ast.Attribute) else []
            names = [name for name in names if name in ("x._factor_list", "x._slice")]
        for name in names:
            parts = name.split(".")
            hidden = any(p.startswith("_") and not p.startswith("__") for p in parts)
            if parts[0] not in (sgp.__name__, "__future__") and (hidden or name.startswith(PRIVATE)):
                yield name


def test_no_other_file_uses_them():
    found = {
        str(file.relative_to(PACKAGE)): names
        for file in PACKAGE.rglob("*.py")
        if (names := list(foreign_private_names(file.read_text())))
    }
    assert set(found) == {"utils/internals.py"}


@pytest.mark.slow
def test_without_them_compilation_is_all_that_changes(monkeypatch):
    """A release of Numba without one of the names: a warning, and the same values."""
    monkeypatch.setattr(internals, "COMPILED_APART", ("numba.core.cgutils:gone",))
    internals.can_compile_apart.cache_clear()
    monkeypatch.setattr(_numba, "_CALLED", {})
    monkeypatch.setattr(_numba, "_CALLERS", {})
    monkeypatch.setattr(_numba, "compile_apart", None)
    V = pt.matrix("V", dtype="float64")
    out = sgp.ops.toeplitz_matvec(pt.as_tensor([2.0, 1.0, 0.5]), V)
    modes = "NUMBA", BY_OPS
    _numba._machine_code.cache_clear()
    try:
        with (
            pytensor.config.change_flags(numba__cache=False),
            pytest.warns(UserWarning, match="longer .* lacks numba.core.cgutils:gone"),
        ):
            found = [pytensor.function([V], out, mode=mode)(np.eye(3).T) for mode in modes]
    finally:
        internals.can_compile_apart.cache_clear()
        _numba._machine_code.cache_clear()
    np.testing.assert_allclose([each[0] for each in found], [[2.0, 1.0, 0.5]] * 2)
