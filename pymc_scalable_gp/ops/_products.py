"""Products with a structured operator, compiled for each back-end."""

import math
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import get_mode
from pytensor.gradient import disconnected_type
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._jax import jax, jax_funcify
from pymc_scalable_gp.ops._lanczos_steps import build_backward, build_forward
from pymc_scalable_gp.ops._numba import source_version
from pymc_scalable_gp.utils.graphs import is_random

if TYPE_CHECKING:
    from pymc_scalable_gp.linops.base import LinearOperator


class Products:
    """Products with a linear operator, and their gradient, as graphs of its parameters alone."""

    def __init__(self, operator: "LinearOperator", n: int | None, chunk: int):
        outer = list(operator.parameters)
        self.free = tuple(i for i, p in enumerate(outer) if is_random(p))
        inner = [p.type() for p in outer]
        replace = dict(zip(outer, inner, strict=True))
        # Static numbers of columns: JAX must know every shape.
        v = pt.tensor("v", dtype="float64", shape=(n, 1))
        V, G = (pt.tensor(name, dtype="float64", shape=(n, chunk)) for name in "VG")
        single, product = (
            clone_replace(operator.matmat(a), replace).astype("float64") for a in (v, V)
        )
        wanted = [inner[i] for i in self.free]
        grads = pt.grad((product * G).sum(), wanted, disconnected_inputs="ignore") if wanted else []
        flat = pt.concatenate([g.ravel() for g in grads]) if grads else pt.zeros(0)
        self.chunk = chunk
        self.matmat = FunctionGraph([v, *inner], [single], clone=True)
        self.vjp = FunctionGraph([V, G, *inner], [flat.astype("float64")], clone=True)

    @classmethod
    def of(cls, operator: "LinearOperator", n: int | None, chunk: int) -> "Products":
        """The operator's own, made once: what uses them shares their compiled functions."""
        held = operator.__dict__.setdefault("_products", {})
        if (n, chunk) not in held:
            held[n, chunk] = cls(operator, n, chunk)
        return held[n, chunk]

    def __getstate__(self):
        return {name: getattr(self, name) for name in ("free", "chunk", "matmat", "vjp")}

    @cached_property
    def python(self):
        """Compiled ``matmat`` and ``vjp`` for `perform`."""
        return tuple(
            pytensor.function(
                g.inputs, g.outputs[0], mode="FAST_COMPILE", on_unused_input="ignore",
                accept_inplace=True, trust_input=True,
            )
            for g in (self.matmat.clone(), self.vjp.clone())
        )  # fmt: skip

    @cached_property
    def numba(self):
        """Numba functions ``matmat`` and ``vjp``, and a cache key (None: not cacheable)."""
        functions, keys = [], []
        for graph in (self.matmat.clone(), self.vjp.clone()):
            get_mode("NUMBA").excluding("inplace").optimizer.rewrite(graph)
            function, key = nb.numba_funcify_and_cache_key(graph, squeeze_output=True)
            functions.append(function)
            keys.append(key)
        return *functions, None if None in keys else "".join(keys)

    @cached_property
    def numba_steps(self):
        """Numba functions of the Lanczos steps and of their adjoint."""
        matmat, vjp, _ = self.numba
        return (
            build_forward(matmat, nb.numba_njit),
            build_backward(matmat, vjp, self.chunk, nb.numba_njit),
        )

    @cached_property
    def jax(self):
        """JAX functions ``matmat`` and ``vjp``."""
        with jax.ensure_compile_time_eval():  # constants must not belong to a trace
            matmat, vjp = (jax_funcify(g) for g in (self.matmat, self.vjp))
        return (lambda *a: matmat(*a)[0]), (lambda *a: vjp(*a)[0])


def split_flat(flat, parameters, free):
    """Gradients of the free parameters out of one vector; the others are disconnected."""
    grads, start = [disconnected_type() for _ in parameters], 0
    for i in free:
        shape = parameters[i].type.shape
        stop = start + (parameters[i].size if None in shape else math.prod(shape))
        if shape:
            grads[i] = flat[start:stop].reshape(parameters[i].shape, ndim=len(shape))
        else:
            grads[i] = flat[start]
        start = stop
    return grads


def cache_key(*parts):
    """Key of a compiled function, or None if a part has none."""
    if None in parts:
        return None
    return sha256(str((source_version(), *parts)).encode()).hexdigest()
