"""Values of symbolic expressions at a point of a PyMC model."""

from collections.abc import Mapping
from difflib import get_close_matches
from threading import RLock

import numpy as np
import pandas as pd
import pytensor
import pytensor.tensor as pt
from pymc.initial_point import make_initial_point_fn
from pymc.logprob.utils import local_check_parameter_to_ninf_switch
from pytensor.compile.builders import OpFromGraph, infer_shape
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import dfs_rewriter, in2out, node_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Clip
from pytensor.scalar.math import Log1mexp, Softplus, TriGamma
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.op import RandomVariable, RNGConsumerOp
from pytensor.tensor.rewriting.basic import local_second_to_alloc
from pytensor.tensor.type import TensorType

from pymc_scalable_gp.utils.graphs import is_random, model_here, nearest
from pymc_scalable_gp.utils.linker import PythonLinker


def _clip(x, low, high):
    """``min(max(x, low), high)``."""
    out = pt.maximum(x, low)
    unbounded = isinstance(high, Constant) and np.all(np.isposinf(high.data))
    return out if unbounded else pt.minimum(out, high)


def _softplus(x):
    """``log(1 + exp(x))``."""
    return pt.maximum(x, 0) + pt.log1p(pt.exp(-pt.abs(x)))


def _log1mexp(x):
    """``log(1 - exp(x))``, of two forms the one that is accurate."""
    return pt.switch(x < np.log(0.5), pt.log1p(-pt.exp(x)), pt.log(-pt.expm1(x)))


_OF_ARRAYS = {Clip: _clip, Softplus: _softplus, Log1mexp: _log1mexp, TriGamma: lambda x: pt.polygamma(1, x)}


@node_rewriter([Elemwise])
def _by_arrays(fgraph, node):
    """What Python computes entry by entry, by functions of arrays."""
    form = _OF_ARRAYS.get(type(node.op.scalar_op))
    if form is None:
        return None
    (old,) = node.outputs
    new = form(*node.inputs).astype(old.type.dtype)
    return [new if old.type.is_super(new.type) else pt.specify_shape(new, old.type.shape)]


@node_rewriter([OpFromGraph, Blockwise])
def _by_its_graph(fgraph, node):
    """The graph of softmax, logsumexp, diagonal matrices and their like, alone or one for each of many.

    PyTensor would compile each for seconds, into one function that all threads run at once.
    """
    op = node.op
    if isinstance(op, OpFromGraph):
        return inline_ofg_node(node)
    if not isinstance(op.core_op, OpFromGraph):
        return None
    batch = op.batch_ndim(node)
    cores = [TensorType(v.dtype, shape=v.type.shape[batch:])() for v in node.inputs]
    found = inline_ofg_node(op.core_op.make_node(*cores))
    return vectorize_graph(found, dict(zip(cores, node.inputs, strict=True)))


_RANDOM = RandomVariable | RNGConsumerOp

# Rewrites that make one operation of a long sum or product: in Python it takes no more than 32 operands.
FLATTENING = ("local_add_canonizer", "local_mul_canonizer")
# Rewrites that compiling waits for: one multiplies products of sums out to see whether that is simpler, the
# others ask of every product and transpose whether matrices are diagonal, symmetric or select rows.
TRYING = (
    "local_greedy_distributor",
    "dot_diag_to_elemwise",
    "useless_symmetric_transpose",
    "selection_dot_to_indexing",
)
# As in pm.compile: parameters outside a distribution's range, as a negative sigma, make its density zero.
ZERO_OUTSIDE = (in2out(local_check_parameter_to_ninf_switch), 1.85)
IN_PYTHON = get_mode("FAST_COMPILE").excluding(*FLATTENING, *TRYING)

# For functions that are called a few times: Numba would take longer to compile than they run, and on
# large arrays the time goes to the Ops' own kernels and BLAS either way. Loops keep their last state alone.
FEW_CALLS = Mode(PythonLinker(), IN_PYTHON.provided_optimizer)
FEW_CALLS = FEW_CALLS.including("expanded", "scan_save_mem_no_prealloc").register(
    (dfs_rewriter(_by_its_graph), 1.8),
    ZERO_OUTSIDE,
    (in2out(_by_arrays), 1.9),
    (in2out(local_second_to_alloc), 1.95),
)

# For functions that are called once on a few numbers, where rewriting would take longest.
AS_WRITTEN = Mode(PythonLinker(), None)

# While PyTensor compiles in a mode, that is the one of all threads, and two at once may leave it behind.
TURN = RLock()


def zero_outside(graph):
    """A graph with -inf where a parameter is out of its range: in a search that is a step too far."""
    found = FunctionGraph(outputs=[graph], clone=True, copy_inputs=False)
    ZERO_OUTSIDE[0].apply(found)
    return found.outputs[0]


def compiled(inputs, outputs, **options):
    """PyTensor function for a few calls on large arrays; `options` are those of ``pytensor.function``."""
    kinds = {"mode": FEW_CALLS, "on_unused_input": "ignore", "allow_input_downcast": True}
    with TURN:
        return pytensor.function(inputs, outputs, **kinds | options)


def in_jax() -> bool:
    """Whether PyTensor's mode, which the user sets, is JAX's."""
    return pytensor.config.mode == "JAX"


def model_inputs(outputs, model) -> list:
    """Random variables of `model` that `outputs` depend on directly, in a fixed order."""
    named = set(model.basic_RVs)
    return sorted(nearest(outputs, named.__contains__), key=lambda v: v.name)


def check_reached(outputs, inputs) -> None:
    """Raise ValueError if `outputs` depend on random variables that are not among `inputs`.

    A function of them would draw them anew at every call.
    """
    known = set(inputs)
    random = [
        v for v in ancestors(list(outputs), blockers=known)
        if v not in known and v.owner is not None and isinstance(v.owner.op, _RANDOM)
        and getattr(v.type, "ndim", None) is not None
    ]  # fmt: skip
    names = sorted({v.name for v in random if v.name})
    if random and not names:
        raise ValueError(
            "the GP depends on a random variable without a name, which dist() makes: write a variable of "
            "the model in its place, with a name and before any likelihood= function"
        )
    if random:
        raise ValueError(
            f"the GP depends on {', '.join(names) or 'random variables'} of another model than this "
            "one (pm.do, pm.observe and clones copy a model): use the model that the GP was built in, "
            "or build the GP again in the copy"
        )


def point_values(inputs, point, model, fill: bool = False, whole: bool = True) -> list[np.ndarray]:
    """Values of `inputs` from `point`; missing ones from the initial point when `fill`.

    Names are those that `check_names` lets pass.
    """
    point = as_point(point)
    missing = [v.name for v in inputs if v.name not in point]
    check_names(point, [v for v in inputs if v.name in missing], model, whole)
    if missing and not fill:
        raise ValueError(f"point lacks a value for {', '.join(missing)}; it holds {list(point)}")
    start = make_initial_point_fn(model=model, return_transformed=False)(0) if missing else {}
    found = [np.asarray(point.get(v.name, start.get(v.name)), dtype=v.dtype) for v in inputs]
    for variable, value in zip(inputs, found, strict=True):
        if (wanted := misfit(variable, value.shape)) is not None:
            raise ValueError(
                f"point has {variable.name} of shape {value.shape}; the model's has shape {wanted}"
            )
        check_labels(variable.name, point.get(variable.name), model)
    return found


def misfit(variable, shape) -> tuple[int | None, ...] | None:
    """The variable's present shape, if a value of this `shape` is none of the variable; else None."""
    wanted = present_shape(variable)
    fits = len(shape) == len(wanted) and all(
        size in (None, came) for size, came in zip(wanted, shape, strict=True)
    )
    return None if fits else wanted


def check_labels(name, value, model) -> None:
    """Raise ValueError where a DataArray has the model's labels in another order, or others.

    Whole numbers from 0, which stand for no labels, are passed over unless they are the model's own.
    """
    for dim in getattr(value, "dims", ()):
        labels, given = model.coords.get(dim), value.indexes.get(dim)
        if labels is None or given is None:
            continue
        own = pd.Index(labels)
        same = set(own) == set(given)
        # By their words as well: files change the units and the kind of dates and numbers.
        pairs = enumerate(zip(own, given, strict=False))
        other = next((k for k, (a, b) in pairs if a != b and str(a) != str(b)), None)
        if other is None or (not same and given.equals(pd.RangeIndex(len(given)))):
            continue
        order = f"[*model.coords[{dim!r}]]"
        remedy = f"sort it by .sel({dim}={order})"
        if not same:
            remedy = f"is it of this model? In its order, rename it by .assign_coords({dim}={order})"
        raise ValueError(
            f"{name} has {given[other]} at place {other} of {dim}, the model {own[other]}: {remedy}"
        )


def check_names(point, missing, model, whole: bool = True) -> None:
    """Raise ValueError for names of a point that a model does not know, or knows as unconstrained.

    `missing` are variables that the point has no value of. Before the model is `whole`, a point may hold
    names that it does not know yet, unless they resemble those.
    """
    values = {v.name: model.rvs_to_values[v].name for v in missing if v in model.rvs_to_values}
    if wrong := {value: name for name, value in values.items() if value in point}:
        raise ValueError(
            f"point has {', '.join(wrong)}, unconstrained: give {', '.join(wrong.values())} itself, as "
            "pm.find_MAP does beside it"
        )
    known = set(model.named_vars).union(v.name for v in model.value_vars)
    unknown = sorted(name for name in point if name not in known)
    near = known if whole else [v.name for v in missing]
    close = {name: get_close_matches(name, near, 1, 0.5) for name in unknown}
    words = [
        f"{name} (is {found[0]} meant?)" if found else name
        for name, found in close.items() if found or whole
    ]  # fmt: skip
    if words:
        free = sorted(v.name for v in model.free_RVs)
        raise ValueError(
            f"point has {', '.join(words)}, which the model does not know; its free variables are "
            f"{', '.join(free) or 'none'}"
        )


def as_point(point, label: str = "point") -> dict:
    """A point, by name, from a dictionary, the single draw that ``pm.find_MAP`` may return, or None.

    Variables may stand for their names, as in ``pm.sample(initvals=...)``.
    """
    if point is None:
        return {}
    if "posterior" in getattr(point, "children", {}):
        draws = point["posterior"].dataset
        sizes = {dim: draws.sizes[dim] for dim in ("chain", "draw") if dim in draws.sizes}
        if any(size != 1 for size in sizes.values()):
            raise ValueError(
                f"a point is one value of each variable, got {' x '.join(map(str, sizes.values()))} "
                "draws: predict_posterior takes them all; for one point give "
                f"dict(idata.posterior.mean({list(sizes)}))"
            )
        first = draws.isel(dict.fromkeys(sizes, 0))
        return dict(first.data_vars)
    if not isinstance(point, Mapping):
        raise TypeError(
            f"{label} must be a dictionary of values by name, such as pm.find_MAP returns, or posterior "
            f"draws where these are taken, got {type(point).__name__} {point!r:.50}"
        )
    return {getattr(name, "name", name): value for name, value in point.items()}


def compile_outputs(outputs, model):
    """Function of the model's variables that `outputs` depend on, and those variables."""
    inputs = model_inputs(outputs, model)
    check_reached(outputs, inputs)
    return compiled(inputs, outputs), inputs


def evaluate(outputs, point=None, model=None):
    """Values of `outputs` with the model's variables at `point` (missing ones: initial point)."""
    return evaluate_at(outputs, [point], model)[0]


def present_shape(tensor) -> tuple[int | None, ...]:
    """Shape of a tensor, at present where a model's dims or shared data say it; None where nothing does."""
    if None not in tensor.type.shape:
        return tensor.type.shape
    (lengths,) = infer_shape([tensor], [], [])
    if is_random(*lengths):
        return tensor.type.shape
    return tuple(int(length) for length in compiled([], list(lengths), mode=AS_WRITTEN)())


def evaluate_at(outputs, points, model=None) -> list:
    """Values of `outputs` at each of some points, compiled once."""
    if not is_random(*outputs):
        return [compiled([], list(outputs))()] * len(points)
    model = model_here(model)
    function, inputs = compile_outputs(list(outputs), model)
    return [function(*point_values(inputs, point, model, fill=True, whole=False)) for point in points]
