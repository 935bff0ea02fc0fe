"""One place that gives every Op its JAX form, differentiated by the Op's own pullback."""

import numpy as np
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.null_type import NullType

try:
    import jax
    import jax.numpy as jnp
    from pytensor.link.jax.dispatch import jax_funcify
except ImportError:  # JAX is an optional extra
    jax = jnp = jax_funcify = None


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
            forward = build(op)
            return _with_pullback(op, node, forward) if differentiable else forward

        return build

    return decorate


def _with_pullback(op, node, forward):
    backward = []  # built at the first trace: most models never leave PyTensor's own gradient

    @jax.custom_vjp
    def function(*inputs):
        return forward(*inputs)

    def fwd(*inputs):
        outputs = forward(*inputs)
        return outputs, (inputs, outputs if isinstance(outputs, tuple) else (outputs,))

    def bwd(residuals, cotangents):
        inputs, outputs = residuals
        if not isinstance(cotangents, tuple | list):
            cotangents = (cotangents,)
        if not backward:
            backward.append(_pullback_function(op, node))
        return backward[0](inputs, outputs, cotangents)

    function.defvjp(fwd, bwd)
    return function


def _pullback_function(op, node):
    """JAX function (inputs, outputs, cotangents) -> input cotangents, from ``op.pullback``."""
    inputs = [variable.type() for variable in node.inputs]
    outputs = [variable.type() for variable in node.outputs]
    differentiable = getattr(op, "differentiable_outputs", tuple(range(len(outputs))))
    cotangents = [
        variable.type() if i in differentiable else disconnected_type()
        for i, variable in enumerate(node.outputs)
    ]
    connected = [cotangents[i] for i in differentiable]
    grads = op.pullback(inputs, outputs, cotangents)
    wanted = [i for i, g in enumerate(grads) if not isinstance(g.type, DisconnectedType | NullType)]
    graph = FunctionGraph([*inputs, *outputs, *connected], [grads[i] for i in wanted], clone=True)
    run = jax_funcify(graph)

    def pullback(input_values, output_values, cotangent_values):
        seen = [cotangent_values[i] for i in differentiable]
        found = dict(zip(wanted, run(*input_values, *output_values, *seen), strict=True))
        return tuple(
            found[i] if i in found else _zero_cotangent(value)
            for i, value in enumerate(input_values)
        )

    return pullback


def _zero_cotangent(value):
    value = jnp.asarray(value)
    if jnp.issubdtype(value.dtype, jnp.integer) or value.dtype == bool:
        return np.zeros(value.shape, dtype=jax.dtypes.float0)
    return jnp.zeros_like(value)
