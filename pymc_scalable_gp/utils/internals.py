"""All private names of PyTensor, Numba and PyMC that the package uses.

Without a name in `COMPILED_APART` Ops take longer to compile, and a warning says so; the others are needed.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pkgutil import resolve_name

import llvmlite.binding as llvm
from llvmlite import ir
from numba import TypingError, types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from pymc.logprob.abstract import _logprob
from pytensor.configdefaults import config
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.utils.warn import warn

with suppress(ImportError):
    from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

NEEDED = (
    "numba.core.base:BaseContext.cast",
    "numba.core.base:BaseContext.make_array",
    "numba.core.cgutils:alloca_once_value",
    "numba.core.cgutils:get_or_insert_function",
    "numba.core.cgutils:unpack_tuple",
    "numba.core.types:StarArgTuple.from_types",
    "pymc.gp.cov:Covariance._slice",
    "pymc.logprob.abstract:_logprob",
)
COMPILED_APART = (
    "numba.core.callconv:CPUCallConv.call_function",
    "numba.core.callconv:CPUCallConv.get_function_type",
    "numba.core.callconv:CPUCallConv.return_status_propagate",
    "numba.core.cgutils:if_unlikely",
    "numba.core.codegen:JITCodeLibrary.get_pointer_to_function",
    "numba.core.compiler:CompileResult.fndesc",
    "numba.core.compiler:CompileResult.library",
    "numba.core.cpu:CPUContext.call_conv",
    "numba.core.dispatcher:Dispatcher.compile",
    "numba.core.dispatcher:Dispatcher.stats",
    "numba.core.funcdesc:FunctionDescriptor.llvm_func_name",
    "pytensor.link.numba.cache:CACHED_SRC_FUNCTIONS",
)

register_logprob = _logprob.register


def missing(names) -> list[str]:
    """Names that the installed releases lack."""
    found = []
    for name in names:
        try:
            resolve_name(name)
        except (ImportError, AttributeError):
            found.append(name)
    return found


def parts_of(cov) -> list:
    """What a sum, a product or a Kronecker product of PyMC's kernels is made of."""
    return cov._factor_list


def own_columns(cov, X, Xs=None):
    """Columns of the inputs that a kernel of PyMC reads."""
    return cov._slice(X, Xs)


@cache
def can_compile_apart() -> bool:
    """Whether :func:`compile_apart` works with the installed releases; warns where it does not."""
    gone = missing(COMPILED_APART)
    if gone:
        warn(
            "compilation takes longer than it needs to: this release of Numba or PyTensor lacks "
            f"{', '.join(gone)}. A later release of pymc_scalable_gp may know the new name"
        )
    return not gone


def compile_apart(function, arguments, symbol) -> tuple[Callable, bool]:
    """Numba function that calls the machine code of a numba_njit `function`, and whether that was on disk.

    `arguments` are the Numba types of its arguments, arrays; `symbol` names the machine code to LLVM and on
    disk, for good.
    """
    CACHED_SRC_FUNCTIONS[function.py_func] = symbol
    dispatcher = nb.numba_njit(function.py_func, cache=config.numba__cache)
    dispatcher.compile(arguments)
    (code,) = dispatcher.overloads.values()
    llvm.add_symbol(symbol, code.library.get_pointer_to_function(code.fndesc.llvm_func_name))
    result = code.signature.return_type

    @intrinsic
    def call(typingctx, *given):
        given = _unpacked(given)
        for have, want in zip(given, arguments, strict=True):
            _check(symbol, have, want)

        def codegen(context, builder, sig, args):
            values = cgutils.unpack_tuple(builder, args[0])
            kind = context.call_conv.get_function_type(result, arguments)
            code = cgutils.get_or_insert_function(builder.module, kind, symbol)
            # Arrays of all layouts are the same to the machine.
            status, out = context.call_conv.call_function(builder, code, result, arguments, values)
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return out

        return result(types.StarArgTuple.from_types(given)), codegen

    call.keep = dispatcher  # its machine code goes with it
    return call, not dispatcher.stats.cache_misses


def _unpacked(given):
    """Types of arguments; Numba asks again with the tuple that it packed."""
    packed = len(given) == 1 and isinstance(given[0], types.BaseTuple)
    return given[0].types if packed else given


def _check(symbol, have, want):
    """Raise TypingError for a type other than the one compiled for: machine code does not check."""
    same = isinstance(have, types.Array) and (have.dtype, have.ndim) == (want.dtype, want.ndim)
    if not (same and (want.layout == "A" or have.layout == "C" or have.ndim == 0)):
        raise TypingError(f"{symbol} takes {want}, not {have}")


@intrinsic
def as_ordered(typingctx, a):
    """The same array, with a type that says that it is C-ordered."""
    found = a.copy(layout="C")

    def codegen(context, builder, sig, args):
        context.nrt.incref(builder, found, args[0])
        return args[0]

    return found(a), codegen


@intrinsic
def float_of_bits(typingctx, bits):
    """The float64 of the same 64 bits as an integer."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


_SCALARS = {"i": types.int32, "d": types.float64}
_INT, _REAL = ir.IntType(32), ir.DoubleType()


def fortran(module: str, name: str, arguments: str):
    """Numba function for a routine of SciPy's BLAS or LAPACK.

    `arguments` has a letter for each: ``i`` int and ``d`` float, which go by reference, and ``a`` array;
    ``o`` at the end is the status, which is returned and not passed.

    A symbol that LLVM resolves: machine code that calls it can be kept on disk, and needs no
    detour over Python to find the address, which would take longest to compile.
    """
    symbol = f"sgp_{name}"
    llvm.add_symbol(symbol, get_cython_function_address(f"scipy.linalg.{module}", name))
    kinds = [(_INT if letter in "io" else _REAL).as_pointer() for letter in arguments]
    passed, reports = arguments.removesuffix("o"), arguments.endswith("o")
    result = types.int32 if reports else types.void

    @intrinsic
    def call(typingctx, *given):
        given = _unpacked(given)

        def codegen(context, builder, sig, args):
            pointers = []
            values = cgutils.unpack_tuple(builder, args[0])
            for letter, kind, value in zip(passed, given, values, strict=True):
                if letter == "a":
                    pointers.append(context.make_array(kind)(context, builder, value=value).data)
                else:
                    number = context.cast(builder, value, kind, _SCALARS[letter])
                    pointers.append(cgutils.alloca_once_value(builder, number))
            if reports:
                pointers.append(cgutils.alloca_once_value(builder, _INT(0)))
            routine = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), kinds), symbol
            )
            builder.call(routine, pointers)
            return builder.load(pointers[-1]) if reports else context.get_dummy_value()

        return result(types.StarArgTuple.from_types(given)), codegen

    return call
