"""Registration of an Op's Numba form: machine code that is compiled once, apart from what calls it.

Numba links what a function calls into it and optimises all of it again: at each of the four levels from
an Op's inner loops to the compiled graph, for each memory layout, and in every graph. Here an Op's
function is a symbol to its callers, which compile in no time whatever it does; its machine code is shared
by all graphs, and kept on disk in PyTensor's cache.
"""

import logging
import zlib
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from inspect import getclosurevars
from pathlib import Path

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.dispatcher import Dispatcher
from numba.core.extending import intrinsic, overload
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing import signature
from pytensor.configdefaults import config
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS, compile_numba_function_src
from pytensor.link.numba.dispatch import basic as nb

_log = logging.getLogger("pymc")  # where pm.sample tells what it does

# By symbol, and for good: a graph that is compiled later links to the machine code by this name.
_SEALED: dict[str, Callable] = {}


@cache
def _announce():
    """One line a process, after the first function that was not on disk."""
    _log.info("Compiling machine code, once per machine: up to a minute")


@cache
def source_version() -> int:
    """Checksum of the sources of all Ops."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return zlib.crc32(b"".join(file.read_bytes() for file in files))


def register_numba(op_class, strided=()):
    """Decorator: ``build(op) -> numba_njit function`` becomes the Numba form of `op_class`.

    Parameters
    ----------
    op_class : type
    strided : tuple of int
        Places of the inputs that the function takes in any memory layout; all others reach it C-ordered.

    Notes
    -----
    PyTensor keeps compiled functions on disk under the Op's properties and a version number. The
    number is a checksum of this folder, so an edit never meets the machine code of an earlier one.
    """

    def decorate(build):
        @nb.register_funcify_default_op_cache_key(op_class)
        def funcify(op, node=None, **kwargs):
            kinds = tuple(
                nb.get_numba_type(x.type, layout="A" if place in strided else "C")
                for place, x in enumerate(node.inputs)
            )
            name = op_class.__module__, op_class.__qualname__, str(op._props_dict())
            identity = (*name, config.numba__fastmath, source_version())
            return seal(build(op), kinds, identity), source_version()

        return build

    return decorate


def inlined(function):
    """Decorator for what one Numba function calls: it becomes a part of that, and is not compiled first.

    Half of the time that it takes otherwise. Python calls its ``py_func``. It must be a global of the
    function that calls it: machine code on disk is found again by what a closure holds.
    """
    return nb.numba_njit(function, inline="always")


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
        return _as_ordered(a)

    return impl


@intrinsic
def _as_ordered(typingctx, a):
    """The same array, with a type that says that it is C-ordered."""
    found = a.copy(layout="C")

    def codegen(context, builder, sig, args):
        return impl_ret_borrowed(context, builder, found, args[0])

    return found(a), codegen


def seal(function, arguments, identity):
    """Numba function that calls `function`, compiled once and apart from what calls it.

    Parameters
    ----------
    function : numba_njit function
        It must not write to its arguments, which may be read-only, nor return one.
    arguments : tuple of Numba types
        Of its arguments: arrays, C-ordered or (layout "A") in any layout.
    identity : tuple
        Tells the function from all others, with `arguments` and on disk as well.

    Returns
    -------
    Numba function
        Takes arrays of these types and of all layouts.

    Raises
    ------
    TypeError
        If a closure holds a Numba function: its machine code would not be found on disk again.
    """
    if any(
        isinstance(held, Dispatcher) for held in getclosurevars(function.py_func).nonlocals.values()
    ):
        raise TypeError(f"{function.__name__} holds a compiled function, which differs by process")
    name, names = function.__name__, [f"a{i}" for i in range(len(arguments))]
    symbol = f"sgp_{name}_{sha256(str((identity, arguments)).encode()).hexdigest()}"
    if symbol in _SEALED:
        return _SEALED[symbol]
    CACHED_SRC_FUNCTIONS[function.py_func] = symbol
    dispatcher = nb.numba_njit(function.py_func, cache=config.numba__cache)
    dispatcher.compile(arguments)
    if dispatcher.stats.cache_misses:
        _announce()
    (code,) = dispatcher.overloads.values()
    llvm.add_symbol(symbol, code.library.get_pointer_to_function(code.fndesc.llvm_func_name))
    call = _caller(symbol, code.signature.return_type, arguments)
    scope = {"call": call, "contiguous": contiguous, "keep": dispatcher}
    passed = ", ".join(
        a if kind.layout == "A" else f"contiguous({a})"
        for a, kind in zip(names, arguments, strict=True)
    )
    given = ", ".join(names)
    outer = f"def {name}({given}): return call({passed})"
    _SEALED[symbol] = nb.numba_njit(compile_numba_function_src(outer, name, global_env=scope))
    return _SEALED[symbol]


def _caller(symbol, result, arguments):
    """Intrinsic that calls the compiled function known to LLVM as `symbol`."""

    @intrinsic
    def call(typingctx, *given):
        if len(given) == 1 and isinstance(given[0], types.BaseTuple):
            given = given[0].types  # Numba asks again with what it packed
        for have, want in zip(given, arguments, strict=True):
            _check(symbol, have, want)

        def codegen(context, builder, sig, args):
            values = cgutils.unpack_tuple(builder, args[0])
            kind = context.call_conv.get_function_type(result, arguments)
            function = cgutils.get_or_insert_function(builder.module, kind, symbol)
            # Arrays of all layouts are the same to the machine.
            status, out = context.call_conv.call_function(
                builder, function, result, arguments, values
            )
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return out

        return signature(result, types.StarArgTuple.from_types(given)), codegen

    return call


def _check(symbol, have, want):
    """Machine code takes what it gets: other types must not reach it."""
    same = isinstance(have, types.Array) and (have.dtype, have.ndim) == (want.dtype, want.ndim)
    if not (same and (want.layout == "A" or have.layout == "C" or have.ndim == 0)):
        raise numba.TypingError(f"{symbol} takes {want}, not {have}")
