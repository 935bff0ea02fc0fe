"""One place that gives every Op its JAX form, differentiated by the Op's own pullback."""

import numpy as np
from pytensor.compile.mode import get_mode
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.null_type import NullType

from pymc_scalable_gp.ops._pruning import prune
from pymc_scalable_gp.utils.checks import RefuseShape

try:
    import jax
    import jax.numpy as jnp
    from jax.custom_derivatives import SymbolicZero
    from pytensor.link.jax.dispatch import jax_funcify
except ImportError:  # JAX is an optional extra
    jax = jnp = jax_funcify = SymbolicZero = None


if jax_funcify is not None:

    @jax_funcify.register(RefuseShape)
    def _refuse_shape(op, **kwargs):
        """No check, and no warning of that: JAX checks the specified shape as it traces."""
        return lambda x, *conditions: x


def register_jax(op_class, differentiable: bool = True):
    """Decorator: ``build(op) -> function of JAX arrays`` becomes the JAX form of `op_class`.

    numpyro and blackjax differentiate the JAX function themselves and never see the PyTensor
    pullback; ``jax.custom_vjp`` therefore runs that pullback, translated to JAX, so that every
    back-end uses one gradient. It precludes forward-mode differentiation.
    """

    def decorate(build):
        if jax_funcify is None:
            return build

        @jax_funcify.register(op_class)
        def funcify(op, node=None, **kwargs):
            forward = _checked(op, build(op))
            return _with_pullback(op, node, forward) if differentiable else forward

        return build

    return decorate


def jax_form(op_class, differentiable: bool = True):
    """Decorator: ``function(*inputs, *op.options())`` becomes the JAX form of `op_class`."""

    def decorate(function):
        register_jax(op_class, differentiable)(lambda op: lambda *inputs: function(*inputs, *op.options()))
        return function

    return decorate


def _checked(op, forward):
    """`forward`, of arrays whose lengths fit together; JAX knows them when it traces."""

    def checked(*inputs):
        inputs = [np.asarray(x) if isinstance(x, float | int) else x for x in inputs]  # constants
        op.check_lengths(inputs)
        return forward(*inputs)

    return checked


def _with_pullback(op, node, forward):
    backward = {}  # built at the first trace: most models never leave PyTensor's own gradient

    @jax.custom_vjp
    def function(*inputs):
        return forward(*inputs)

    def fwd(*inputs):
        values = [x.value for x in inputs]
        outputs = forward(*values)
        kept = outputs if isinstance(outputs, tuple) else (outputs,)
        # A dictionary's keys are static, as the choice of a graph must be.
        return outputs, (values, kept, {i: () for i, x in enumerate(inputs) if x.perturbed})

    def bwd(residuals, cotangents):
        inputs, outputs, wanted = residuals
        if not isinstance(cotangents, tuple | list):
            cotangents = (cotangents,)
        places = getattr(op, "differentiable_outputs", None) or range(len(outputs))
        seen = tuple(i for i in places if not isinstance(cotangents[i], SymbolicZero))
        key = tuple(wanted), seen
        if key not in backward:
            backward[key] = _pullback_function(op, node, *key)
        found = backward[key](inputs, outputs, [cotangents[i] for i in seen])
        return tuple(found.get(i) for i in range(len(inputs)))

    function.defvjp(fwd, bwd, symbolic_zeros=True)
    return function


def _pullback_function(op, node, wanted, seen):
    """JAX function (inputs, outputs, cotangents `seen`) -> cotangents of the inputs, by place."""
    inputs = [variable.type() for variable in node.inputs]
    outputs = [variable.type() for variable in node.outputs]
    cotangents = [v.type() if i in seen else disconnected_type() for i, v in enumerate(outputs)]
    if not seen:
        return lambda *values: {}
    grads = op.pullback(inputs, outputs, cotangents)
    known = [i for i in wanted if not isinstance(grads[i].type, DisconnectedType | NullType)]
    graph = FunctionGraph(
        [*inputs, *outputs, *(cotangents[i] for i in seen)], [grads[i] for i in known], clone=True
    )
    prune.rewrite(graph)
    if getattr(op, "rewritten_pullback", False):
        get_mode("JAX").optimizer.rewrite(graph)
    run = jax_funcify(graph)

    def pullback(input_values, output_values, cotangent_values):
        found = run(*input_values, *output_values, *cotangent_values)
        return dict(zip(known, found, strict=True))

    return pullback
