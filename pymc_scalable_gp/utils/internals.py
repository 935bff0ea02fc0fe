"""All private names of PyTensor, Numba and PyMC that the package uses.

Without a name in `COMPILED_APART` Ops take longer to compile, and a warning says so; the others are needed.
"""

from collections.abc import Callable
from contextlib import contextmanager, suppress
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
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.environment import lookup_environment
    from numba.core.registry import cpu_target
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
    "numba.core.codegen:CPUCodeLibrary._finalize_final_module",
    "numba.core.codegen:CPUCodeLibrary._optimize_final_module",
    "numba.core.codegen:CodeLibrary._ensure_finalized",
    "numba.core.codegen:CodeLibrary.has_dynamic_globals",
    "numba.core.codegen:JITCPUCodegen._library_class",
    "numba.core.codegen:JITCPUCodegen.set_env",
    "numba.core.codegen:JITCodeLibrary.get_pointer_to_function",
    "numba.core.compiler:CompileResult.fndesc",
    "numba.core.compiler:CompileResult.library",
    "numba.core.compiler_lock:global_compiler_lock",
    "numba.core.cpu:CPUContext.call_conv",
    "numba.core.dispatcher:Dispatcher.compile",
    "numba.core.dispatcher:Dispatcher.stats",
    "numba.core.environment:lookup_environment",
    "numba.core.funcdesc:FunctionDescriptor.llvm_func_name",
    "numba.core.registry:cpu_target",
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
def _part_class():
    """Class of the code of a function that Numba compiles, while :func:`compiled_as_one` holds.

    Numba optimises every function and makes machine code of it, and does so again where another one calls
    it. Here a function is a part of those that call it until somebody asks for its own machine code.
    """

    class Part(JITCodeLibrary):
        is_machine_code = False

        @property
        def codegen(self):
            """Where Numba tells what a function shares with Python, once there is machine code."""
            return self._codegen if self.is_machine_code else self

        def set_env(self, name, environment):
            """Left to the machine code that it becomes a part of."""

        def _optimize_final_module(self):
            """Left to those that it is a part of."""

        def _finalize_final_module(self):
            if self._object_caching_enabled and self._compiled_object is not None:  # from disk
                self._translate()
            self._finalized = True

        @property
        def has_dynamic_globals(self):
            self._make_machine_code()
            return super().has_dynamic_globals

        def _translate(self):
            super()._finalize_final_module()
            self.is_machine_code = True
            for variable in self._final_module.global_variables:
                if (found := lookup_environment(variable.name)) is not None:
                    self._codegen.set_env(variable.name, found)

        def _make_machine_code(self):
            self._ensure_finalized()
            if not self.is_machine_code:
                super()._optimize_final_module()
                self._translate()

        def get_pointer_to_function(self, name):
            names = {f.name for f in self._final_module.functions if not f.is_declaration}
            if not self.is_machine_code and name not in names:
                return 0
            self._make_machine_code()
            return super().get_pointer_to_function(name)

        def serialize_using_object_code(self):
            self._make_machine_code()
            return super().serialize_using_object_code()

    return Part


@contextmanager
def compiled_as_one():
    """What Numba compiles meanwhile becomes machine code as a whole: its parts do not, one by one."""
    if not can_compile_apart():
        yield
        return
    codegen = cpu_target.target_context.codegen()
    with global_compiler_lock:
        kept, codegen._library_class = codegen._library_class, _part_class()
        try:
            yield
        finally:
            codegen._library_class = kept


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


def njit(function, **options):
    """Numba function in which a division by zero gives what it gives in NumPy, and is no exception.

    A search turns back from NaN, and ends with an exception.
    """
    return nb.numba_njit(function, error_model="numpy", **options)


def compile_apart(function, arguments, symbol) -> tuple[Callable, bool]:
    """Numba function that calls the machine code of a Numba `function`, and whether that was on disk.

    `arguments` are the Numba types of its arguments, arrays; `symbol` names the machine code to LLVM and on
    disk, for good.
    """
    CACHED_SRC_FUNCTIONS[function.py_func] = symbol
    options = {"cache": config.numba__cache, "no_cpython_wrapper": False}
    # Threads that call it from Python do not wait for one another.
    dispatcher = njit(function.py_func, nogil=True, **options)
    with compiled_as_one():
        dispatcher.compile(arguments)
    dispatcher.disable_compile()  # from Python, too, arrays of all layouts are those that it knows
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

    call.keep = dispatcher  # for Python; and its machine code goes with it
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
