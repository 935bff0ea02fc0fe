"""Questions about graphs."""

from collections.abc import Callable, Iterable, Sequence
from uuid import uuid4

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Cast
from pytensor.tensor.basic import Split
from pytensor.tensor.random.op import RandomVariable, RNGConsumerOp
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.variable import TensorVariable


def is_random(*variables, known: Iterable[Variable] = ()) -> bool:
    """Whether any of the variables depends on a random variable or an input other than `known`."""
    return not _depend_on_data(variables, known, lambda v: isinstance(v, Constant | SharedVariable))


def draws_numbers(*outputs) -> bool:
    """Whether graphs draw random numbers when they are evaluated, as those of ``pm.Minibatch`` do."""
    return any(isinstance(v.type, RandomType) for v in ancestors(outputs))


def _depend_on_data(variables, known, is_data) -> bool:
    """Whether nothing but data and `known` is behind the variables: no other root, and nothing random."""
    known = set(known)
    return not any(
        not is_data(v) if v.owner is None else isinstance(v.owner.op, RandomVariable | RNGConsumerOp)
        for v in ancestors(variables, blockers=known) if v not in known
    )  # fmt: skip


def as_scalar(value) -> TensorVariable:
    """The entry of a tensor that has one; its type need not know that, as for variables with ``dims``."""
    tensor = pt.as_tensor_variable(value)
    return tensor.reshape(()) if tensor.ndim else tensor


def parameters_of(outputs: Iterable[Variable], model) -> list[Variable]:
    """Named variables of `model` and shared data that `outputs` depend on directly.

    Random generators are not among them. Their order is that of the graph, not of names, which hold random
    digits: compiled code is found again on disk by it.
    """
    named = set(model.named_vars.values())
    return nearest(outputs, lambda v: v in named or isinstance(v, SharedVariable))


def nearest(outputs: Iterable[Variable], wanted: Callable[[Variable], bool]) -> list[Variable]:
    """The `wanted` that `outputs` depend on directly, but for generators: none is looked for behind one."""
    found, stack, seen = [], list(outputs), set()
    while stack:
        v = stack.pop()
        if v in seen or isinstance(v.type, RandomType):
            continue
        seen.add(v)
        if wanted(v):
            found.append(v)
        elif v.owner is not None:
            stack.extend(v.owner.inputs)
    return found


def raveled(values: Sequence[Variable], point) -> np.ndarray:
    """Values of some variables at a point, by name, as one vector (p,)."""
    parts = [np.ravel(point[v.name]) for v in values]
    return np.concatenate(parts).astype("float64") if parts else np.zeros(0)


def on_vector(outputs: Sequence[Variable], theta, values: Sequence[Variable], point) -> list:
    """`outputs` with slices of a vector `theta` (p,) in the place of `values`, shaped as in a point."""
    pieces, end = {}, 0
    for v in values:
        start, end = end, end + np.size(point[v.name])
        piece = theta[start:end].reshape(np.shape(point[v.name])).astype(v.dtype)
        pieces[v] = v.type.filter_variable(piece)
    return clone_replace(list(outputs), pieces)


def data_shared(array, name: str | None = None) -> SharedVariable:
    """Shared variable (float64 or int64, static shape) of data that are no parameters.

    PyTensor bakes constants into what it compiles: it does not cache functions with large ones, and a
    model of other data, such as the next fold's, would be compiled anew. nutpie wants every name once.
    """
    array = np.asarray(array)
    array = array.astype("int64" if array.dtype.kind in "iu" else "float64", copy=False)
    name = f"fixed_{uuid4().hex}" if name is None else name
    return pytensor.shared(array, name=name, borrow=True, shape=array.shape)


def fixed_shared(array, name: str | None = None) -> SharedVariable:
    """As :func:`data_shared`, of data that nothing replaces: a constant, for :func:`depends_only_on`."""
    variable = data_shared(array, name)
    variable.tag.fixed = True
    return variable


def depends_only_on(outputs: Sequence[Variable], allowed: Iterable[Variable] = ()) -> bool:
    """Whether `outputs` are functions of constants and `allowed` alone, so that they may be computed once.

    `allowed` are shared variables, inputs or expressions that are known not to change; what lies behind an
    expression is not looked at. False when anything else is behind `outputs`: a random variable or a random
    generator, an unspecified input, or a shared variable, such as a ``pm.Data`` that ``pm.set_data`` may
    change; those of :func:`fixed_shared` count as constants.
    """
    return _depend_on_data(
        outputs, allowed, lambda v: isinstance(v, Constant) or getattr(v.tag, "fixed", False)
    )


def without_splits(outputs: list) -> list:
    """Graphs with slices in place of each ``Split`` of known lengths, of which JAX takes no batch."""

    def is_known(v):
        node = v.owner
        return node and isinstance(node.op, Split) and None not in [_length(o) for o in node.outputs]

    while found := next((v.owner for v in ancestors(outputs) if is_known(v)), None):
        x, before = found.inputs[0], (slice(None),) * found.op.axis
        ends = np.cumsum([_length(o) for o in found.outputs])
        pieces = {o: x[*before, end - _length(o) : end] for o, end in zip(found.outputs, ends, strict=True)}
        outputs = graph_replace(outputs, pieces, strict=False)
    return outputs


def _length(piece) -> int | None:
    """Length of an output of ``Split`` along the axis that was split."""
    return piece.type.shape[piece.owner.op.axis]


def same_values(tensor, kept) -> TensorVariable:
    """Whether all entries equal those of `kept`; False, without an error, for another number of rows."""
    count = pt.minimum(tensor.shape[0], kept.shape[0])
    rows = pt.eq(tensor.shape[0], kept.shape[0])
    return rows & pt.eq(tensor[:count], kept[:count]).all()


def present_value(variable):
    """Current value of a constant or shared variable (perhaps behind a cast or a check), else None."""
    while variable.owner is not None and _hands_on(variable.owner.op):
        variable = variable.owner.inputs[0]
    if isinstance(variable, SharedVariable):
        return variable.get_value(borrow=True)
    return getattr(variable, "data", None)


def model_here(model: pm.Model | None = None, needed: bool = True) -> pm.Model | None:
    """The model that was given, or that of the context; the outermost one, which knows all variables.

    A model within another, as ``pm.Model(name=...)`` makes it, knows its own alone.
    TypeError where there is neither and one is `needed`, else None.
    """
    model = pm.Model.get_context(error_if_none=False) if model is None else model
    if model is None and needed:
        raise TypeError(
            "no model is known here: call this inside `with model:`, or give model= where it is an argument"
        )
    return None if model is None else model.root


def _hands_on(op) -> bool:
    """Whether an Op returns its first input, or raises."""
    return isinstance(op, CheckAndRaise | SpecifyShape) or isinstance(getattr(op, "scalar_op", None), Cast)


def with_observations(X):
    """Inputs in which values that PyMC observes are those, as in a covariate with missing ones."""
    model = model_here(needed=False)
    if model is None or not isinstance(X, Variable):
        return X
    known = {rv: model.rvs_to_values[rv] for rv in set(ancestors([X])) & set(model.observed_RVs)}
    return graph_replace(X, known) if known else X


def known_shape(operator) -> tuple[int | None, int | None]:
    """Shape of an operator, as far as it is known before its matrix is."""
    try:
        return operator.shape
    except ValueError:
        return None, None
