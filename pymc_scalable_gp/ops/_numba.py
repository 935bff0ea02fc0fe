"""Registration of an Op's Numba form: machine code that is compiled once, apart from what calls it.

Numba links what a function calls into it and optimises all of it again: at each of the four levels from
an Op's inner loops to the compiled graph, for each memory layout, and in every graph. Here an Op's
function is a symbol to its callers, which compile in no time whatever it does; its machine code is shared
by all graphs, and kept on disk in PyTensor's cache.
"""

import logging
import zlib
from abc import update_abstractmethods
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from inspect import getclosurevars, getsourcefile, signature
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
from numba import types
from numba.extending import overload
from pytensor.configdefaults import config
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._base import LengthError, parse_signature, store
from pymc_scalable_gp.utils.internals import as_ordered, can_compile_apart, compile_apart, njit

_log = logging.getLogger("pymc")  # where pm.sample tells what it does

# By symbol, and for good: a graph that is compiled later links to the machine code by this name.
_CALLED: dict[str, Callable] = {}
_CALLERS: dict[tuple[Callable, tuple], Callable] = {}  # and by what it is handed beside the inputs


@cache
def _announce():
    """One line per process, after the first function that was not on disk."""
    _log.info("Compiling machine code, once per machine: up to a minute")


@cache
def source_version() -> int:
    """Checksum of the sources of all Ops, and of what calls Fortran for them."""
    files = [*sorted(Path(__file__).parent.glob("*.py")), Path(getsourcefile(compile_apart))]
    return zlib.crc32(b"".join(file.read_bytes() for file in files))


def register_numba(op_class, strided=()):
    """Decorator: ``build(op)``, which returns a Numba function, becomes the Numba form of `op_class`.

    Inputs at the places `strided` reach it in any memory layout, all others C-ordered. PyTensor keeps
    compiled functions on disk under the Op's properties and a version number: a checksum of this folder,
    so that an edit never meets the machine code of an earlier one.
    """

    def decorate(build):
        @nb.register_funcify_default_op_cache_key(op_class)
        def funcify(op, node=None, **kwargs):
            props = {name: getattr(op, name) for name in op.__props__ if name not in op.shared}
            identity = op_class.__module__, op_class.__qualname__, str(props), source_version()
            return sealed(op, node, build(op), identity, strided), source_version()

        return build

    return decorate


def numba_form(op_class, strided=()):
    """Decorator: ``function(*inputs, *op.options())`` becomes the Numba form of `op_class`.

    `strided` is that of :func:`register_numba`.
    """

    def decorate(function):
        register_numba(op_class, strided)(form_of(op_class, function))
        return function

    return decorate


def form_of(op_class, function):
    """``build(op)``, for `register_numba`, of a function of an Op's inputs and its options.

    What it returns takes the inputs, and the options that are `shared`, as arrays.
    """
    part = inlined(function)

    def build(op):
        options = op.options()
        if not options:
            return njit(function)
        names = list(signature(function).parameters)
        count, name = len(names) - len(options), op_class.__name__.lower()
        called = dict(zip(op.__props__, names[count:], strict=True))
        shared = [called[prop] for prop in op.shared]
        single = {each for each, v in zip(names[count:], options, strict=True) if not np.ndim(v)}
        passed = [f"{each}.item()" if each in shared and each in single else each for each in names]
        source = f"def {name}({', '.join([*names[:count], *shared])}): return body({', '.join(passed)})"
        scope = {each: v for each, v in zip(names[count:], options, strict=True) if each not in shared}
        # From disk it needs a module's name.
        return from_source(source, name, scope | {"body": part, "__name__": __name__})

    return build


def one_source(op_class, strided=()):
    """Decorator: ``function(*inputs, *op.options())`` becomes the Python and the Numba form of `op_class`.

    It returns an array, or a tuple of one for each output. In Python, too, inputs reach it C-ordered,
    except those at the places `strided`.
    """

    def decorate(function):
        def perform(self, node, inputs, output_storage):
            self.check_lengths(inputs)
            arrays = [x if place in strided else np.asarray(x, order="C") for place, x in enumerate(inputs)]
            with np.errstate(all="ignore"):
                found = function(*arrays, *self.options())
            store(output_storage, found)

        op_class.perform = perform
        update_abstractmethods(op_class)
        return numba_form(op_class, strided)(function)

    return decorate


def by_machine_code(op, inputs, output_storage):
    """What an Op's Python form does with much work: call the machine code of all compiled graphs."""
    kinds = tuple((np.ndim(x), np.asarray(x).dtype.kind in "iu") for x in inputs)
    store(output_storage, _machine_code(op, kinds)(inputs))


@cache
def _machine_code(op, arrays):
    """Function of a list of arrays, of each the number of dimensions and whether it holds integers."""
    kinds = ["int64" if whole else "float64" for _, whole in arrays]
    inputs = [pt.tensor(dtype=kind, shape=(None,) * ndim)
              for kind, (ndim, _) in zip(kinds, arrays, strict=True)]  # fmt: skip
    made, _ = nb.numba_funcify_and_cache_key(op, node=op.make_node(*inputs))
    code, strided, shared = made.code, made.strided, made.shared

    def call(arrays):
        """Machine code is for arrays that may be written to, though it never does."""
        needed = ["W" if place in strided else "CW" for place in range(len(arrays))]
        return code(*map(np.require, arrays, kinds, needed), *shared)

    return call


def inlined(function):
    """Decorator for what one Numba function calls: it becomes a part of that, and is not compiled first.

    Half of the time that it takes otherwise. Python calls its ``py_func``. It must be a global of the
    function that calls it: machine code on disk is found again by what a closure holds.
    """
    return njit(function, inline="always")


def from_source(source: str, name: str, scope: dict):
    """Numba function `name` of a source, whose globals are `scope`."""
    exec(source, scope)
    return njit(scope[name])


def in_numba(function):
    """Decorator: the function that Numba takes in the place of `function`, with the same arguments."""

    def decorate(impl):
        def typed(*types):
            return impl

        typed.__signature__ = signature(impl)
        overload(function)(typed)
        return impl

    return decorate


def contiguous(a):
    """The array itself where it is C-ordered in memory, whatever its type says, or else a copy."""
    return np.ascontiguousarray(a)


@overload(contiguous)
def _contiguous(a):
    if a.layout == "C" or not a.ndim:
        return lambda a: a

    def impl(a):
        step = a.itemsize
        for axis in range(a.ndim - 1, -1, -1):
            if a.shape[axis] != 1 and a.strides[axis] != step:
                return np.ascontiguousarray(a)
            step *= a.shape[axis]
        return as_ordered(a)

    return impl


def sealed(op, node, function, identity, strided=()):
    """Numba function of a node: it checks lengths, and calls `function`, which is compiled once.

    `function` must not write to its arguments, which may be read-only, nor return one. `identity` tells it
    from all others, with the types of its arguments, and on disk as well. TypeError if a closure holds a
    Numba function: its machine code would not be found on disk again.
    """
    kinds = tuple(
        nb.get_numba_type(x.type, layout="A" if place in strided else "C")
        for place, x in enumerate(node.inputs)
    )
    values = shared_options(op)
    kinds += tuple(types.Array(types.int64, value.ndim, "C") for value in values.values())
    name = function.__name__
    if any(hasattr(held, "py_func") for held in getclosurevars(function.py_func).nonlocals.values()):
        raise TypeError(f"{name} holds a compiled function, which differs by process")
    function = compiled_once(function, kinds, identity)
    # Lengths that the Op knows are constants in what checks them.
    handed = function, tuple(getattr(op, prop) for prop in op.shared), tuple(op.lengths().items())
    if handed not in _CALLERS:
        _CALLERS[handed] = caller(op, node, function, strided)
    return _CALLERS[handed]


def compiled_once(function, kinds, identity):
    """What calls the machine code of a Numba `function` for arguments of `kinds`, Numba's types.

    `identity`, with them, tells the function from all others.
    """
    key = sha256(str((identity, config.numba__fastmath, kinds)).encode()).hexdigest()
    symbol = f"sgp_{function.__name__}_{key}"
    if symbol not in _CALLED:
        if can_compile_apart():
            function, on_disk = compile_apart(function, kinds, symbol)
            if not on_disk:
                _announce()
        else:
            # Python calls it too.
            function = njit(function.py_func, no_cpython_wrapper=False, nogil=True)
        _CALLED[symbol] = function
    return _CALLED[symbol]


def shared_options(op) -> dict[str, np.ndarray]:
    """What the machine code of an Op is handed beside the inputs: the options that are `shared`."""
    places = {prop: op.__props__.index(prop) for prop in op.shared}
    return {prop: np.asarray(op.options()[i], dtype="int64") for prop, i in places.items()}


def caller(op, node, function, strided=()):
    """Numba function that calls `function` with arrays of fitting lengths, C-ordered unless `strided`."""
    names = [f"a{place}" for place in range(len(node.inputs))]
    passed = [a if i in strided else f"contiguous({a})" for i, a in enumerate(names)]
    shared = {f"s{place}": each for place, each in enumerate(shared_options(op).values())}
    name = type(op).__name__.lower()
    lines = [f"def {name}({', '.join(names)}):"]
    lines += length_check(op, node.inputs, names)
    lines += [f"    return function({', '.join([*passed, *shared])})"]
    scope = {"function": function, "contiguous": contiguous, "LengthError": LengthError}
    made = from_source("\n".join(lines), name, scope | shared)
    code = getattr(function, "keep", function)  # what Python can call
    made.code, made.strided, made.shared = code, strided, shared.values()
    return made


def length_check(op, inputs, names) -> list[str]:
    """Lines that raise where arrays of these names differ in a length that the signature gives one name."""
    needed, _ = parse_signature(op.signature(inputs))
    found = {name: [str(length)] for name, length in op.lengths().items()}
    for array, lengths in zip(names, needed, strict=True):
        for axis, name in enumerate(lengths):
            found.setdefault(name, []).append(f"{array}.shape[{axis}]")
    for name, (other, more) in op.sums().items():
        if name in found:
            found[name].append(f"{found[other][0]} + {more}")
    differ = [f"{first} != {other}" for first, *others in found.values() for other in others]
    if not differ:
        return []
    shared = " ".join(name for name, lengths in found.items() if len(lengths) > 1)
    # Without the lengths themselves: what Numba makes of values in an exception is lost where several
    # functions raise with values of the same types.
    return [
        f"    if {' or '.join(differ)}:",
        f"        raise LengthError({op.needs(inputs)!r}, {shared!r})",
    ]
