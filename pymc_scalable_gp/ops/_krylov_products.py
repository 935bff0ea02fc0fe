"""Products with a structured operator, compiled for each back-end."""

from functools import cached_property
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import pytensor.tensor as pt
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._jax import jax, jax_funcify
from pymc_scalable_gp.ops._lanczos_steps import build_backward, build_forward
from pymc_scalable_gp.ops._numba import caller, from_source, inlined, sealed, source_version
from pymc_scalable_gp.utils.graphs import known_shape
from pymc_scalable_gp.utils.internals import njit
from pymc_scalable_gp.utils.threads import ForThreads


class Products:
    """Products with a matrix (n, n), and their gradients, as graphs of its parameters alone.

    An operator has the names that `lanczos` asks for, never changes, and is one object for each matrix.
    `free` are the places of the parameters that may have a gradient: those that are no constants and
    hold real numbers. A gradient is built when it is asked for: see `vjp`.
    """

    def __init__(self, operator, n: int | None, chunk: int):
        self.lengths = {} if n is None else {"n": n}
        outer = list(operator.parameters)
        self.free = tuple(
            i for i, p in enumerate(outer) if p.dtype.startswith("float") and not isinstance(p, Constant)
        )
        inner = [p.type() for p in outer]
        replace = dict(zip(outer, inner, strict=True))
        # Static numbers of columns: JAX must know every shape.
        v = pt.tensor("v", dtype="float64", shape=(n, 1))
        V = pt.tensor("V", dtype="float64", shape=(n, chunk))
        single, product = (clone_replace(operator.matmat(a), replace).astype("float64") for a in (v, V))
        self.chunk = chunk
        self.matmat = FunctionGraph([v, *inner], [single], clone=True)
        self.columns = FunctionGraph([V, *inner], [product], clone=True)
        self._made = {}

    @classmethod
    def of(cls, operator, n: int | None, chunk: int) -> "Products":
        """The operator's own, made once: what uses them shares their compiled functions.

        `n` is the vectors' static length; TypeError or ValueError for what is no square operator.
        """
        if not hasattr(operator, "matmat"):
            raise TypeError(f"operator must be one of linops, or like them, got {type(operator).__name__}")
        rows, columns = known_shape(operator)
        if rows != columns:
            raise ValueError(f"operator must be square, got shape {operator.shape}")
        n = n if rows is None else rows
        try:
            held = _SHARED.setdefault(operator, {})
        except TypeError:  # an object of a user's class without a hash or weak references: not shared
            held = {}
        if (n, chunk) not in held:
            held[n, chunk] = cls(operator, n, chunk)
        return held[n, chunk]

    def __getstate__(self):
        kept = ("lengths", "free", "chunk", "matmat", "columns")
        return {name: getattr(self, name) for name in kept} | {"_made": {}}

    def vjp(self, wanted: tuple[int, ...]) -> FunctionGraph:
        """``(V, G, *parameters) -> flat gradient of sum(G * (A V))`` in the parameters `wanted`."""
        (V, *inner), (product,) = self.columns.inputs, self.columns.outputs
        G = V.type()
        value, places = (product * G).sum(), [inner[i] for i in wanted]
        grads = pt.grad(value, places, disconnected_inputs="ignore") if places else []
        flat = pt.concatenate([g.ravel() for g in grads]) if grads else pt.zeros(0)
        return FunctionGraph([V, G, *inner], [flat.astype("float64")], clone=True)

    def _once(self, key, make):
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def python_steps(self, wanted):
        """Lanczos steps and their adjoint for `perform`."""
        matmat = self._once("python", lambda: _compile(self.matmat))
        vjp = self._once(("python", wanted), lambda: _compile(self.vjp(wanted)))
        return build_forward(matmat), build_backward(matmat, vjp, self.chunk)

    @cached_property
    def _numba_matmat(self):
        function, key = _numba_function(self.matmat)
        return function, key, build_forward(function, njit)

    def numba_forward(self):
        """Numba function of the Lanczos steps, and a cache key (None: not cacheable)."""
        _, key, forward = self._numba_matmat
        return forward, key

    def numba_backward(self, wanted):
        """Numba function of the steps' adjoint, and a cache key (None: not cacheable)."""
        matmat, first, _ = self._numba_matmat

        def make():
            vjp, key = _numba_function(self.vjp(wanted))
            return build_backward(matmat, vjp, self.chunk, inlined), key

        function, second = self._once(("numba", wanted), make)
        return function, None if None in (first, second) else first + second

    def numba_function(self, op, node, body, key):
        """Numba form of an Op: ``body(*own inputs, parameters) -> (*own outputs, flat gradient)``.

        It is compiled apart from what calls it, and once, unless there is no key to tell it by.
        """
        names = [f"a{i}" for i in range(len(node.inputs))]
        own, parameters = names[: len(op.own_inputs)], names[len(op.own_inputs) :]
        made = [f"out{i}" for i in range(len(op.own_outputs))]
        packed = "".join(f"{name}, " for name in parameters)
        lines = [f"{', '.join(made)}, flat = body({', '.join(own)}, ({packed}))", "stop = 0"]
        for a in (parameters[i] for i in op.wanted):  # as `cut` does
            lines.append(f"start, stop = stop, stop + {a}.size")
            lines.append(f"{a}_bar = flat[start:stop].reshape({a}.shape)")
            made.append(f"{a}_bar")
        name = type(op).__name__.lower()
        source = "\n    ".join([f"def {name}({', '.join(names)}):", *lines, f"return {', '.join(made)}"])
        scope = {"__name__": __name__, "body": body}  # from disk it needs a module's name
        function = from_source(source, name, scope)
        if key is None:
            return caller(op, node, function), None
        return sealed(op, node, function, (key,)), cache_key(key, *op.lengths().items())

    def jax_functions(self, wanted):
        """JAX functions ``matmat`` and ``vjp``."""
        matmat = self._once("jax", lambda: _jax_function(self.matmat))
        return matmat, self._once(("jax", wanted), lambda: _jax_function(self.vjp(wanted)))


# Of each operator, by length and columns at a time; entries go with their operators.
_SHARED: WeakKeyDictionary[Any, dict[tuple, Products]] = WeakKeyDictionary()


def _compile(graph: FunctionGraph):
    graph = graph.clone()
    return ForThreads(graph.inputs, graph.outputs[0], accept_inplace=True, trust_input=True)


def _numba_function(graph: FunctionGraph):
    graph = graph.clone()
    get_mode("NUMBA").excluding("inplace").optimizer.rewrite(graph)
    return nb.numba_funcify_and_cache_key(graph, squeeze_output=True)


def _jax_function(graph: FunctionGraph):
    with jax.ensure_compile_time_eval():  # constants must not belong to a trace
        function = jax_funcify(graph)
    return lambda *inputs: function(*inputs)[0]


def cut(flat, parameters, places) -> list:
    """The flat gradient in the shapes of the parameters at `places`, in Python and JAX."""
    found, stop = [], 0
    for i in places:
        start, stop = stop, stop + parameters[i].size
        found.append(flat[start:stop].reshape(parameters[i].shape))
    return found


def python_function(op, body):
    """Python or JAX form of an Op; `body` as in :meth:`Products.numba_function`."""

    def function(*inputs):
        own, parameters = inputs[: len(op.own_inputs)], inputs[len(op.own_inputs) :]
        *found, flat = body(*own, parameters)
        return *found, *cut(flat, parameters, op.wanted)

    return function


def cache_key(*parts):
    """Key of a compiled function, or None if a part has none."""
    if None in parts:
        return None
    return sha256(str((source_version(), *parts)).encode()).hexdigest()
