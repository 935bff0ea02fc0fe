"""Checks that every Op and every method must pass; usable in the tests of other packages too."""

import pickle
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.testing import assert_allclose
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import applys_between

from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops._jax import jax, jax_funcify
from pymc_scalable_gp.utils.compiled import IN_PYTHON, evaluate
from pymc_scalable_gp.utils.internals import compiled_as_one

__all__ = ["check_feature_map", "check_marginal_logp", "check_op"]


def check_op(
    op_class: type | None,
    build: Callable,
    reference: Callable,
    cases: Sequence[tuple[np.ndarray, ...]],
    *,
    twin: Callable | None = None,
    differentiable: Sequence[int] | None = None,
    modes: Sequence = ("NUMBA", BY_OPS),
    rtol: float = 1e-9,
    grad_rtol: float = 1e-7,
    fd_rtol: float = 1e-5,
    fd_step: float = 1e-6,
    jax_cases: int = 3,
    seed: int = 0,
) -> None:
    """Check values, gradients, back-ends and bookkeeping of an Op.

    For every case: the Python, `modes` and JAX (if installed) values agree with `reference`; the
    pullback with random cotangents agrees with central differences along random directions, with
    automatic differentiation of `twin`, with the pullback in the other `modes`, and with ``jax.vjp``
    of the Op's JAX form, which runs the pullback's. Once: Numba compiles without object mode, static
    shapes are kept, float32 inputs give float64 results, the shape graph is free of the Op, which is
    also hashed, compared and pickled.

    Parameters
    ----------
    op_class : type or None
        The Op that `build` must use; None for a graph of other Ops, whose bookkeeping is not checked.
    build : callable
        Tensors to a tensor or a sequence of tensors.
    reference : callable
        Arrays to an array or a sequence of arrays, in NumPy; None for an output not compared.
    cases : sequence of tuples of float64 arrays
        Inputs, all of the same number of dimensions, small; every function is compiled once.
    twin : callable, optional
        As `build`, of PyTensor's own operations, whose gradient is automatic; an entry for each
        differentiable output.
    differentiable : sequence of int, optional
        Places of the outputs that have a gradient; all when left out.
    modes : sequence of compilation modes
        Back-ends compared with Python, besides JAX.
    rtol, grad_rtol, fd_rtol : float
        Relative tolerances, to the largest entry, of values; of gradients between exact formulas;
        of gradients against differences.
    fd_step : float
        Step of the differences.
    jax_cases : int
        Only so many of the first `cases` run in JAX, which compiles anew for each shape.
    seed : int
        Seed of cotangents and directions.
    """
    rng = np.random.default_rng(seed)
    tensors = [pt.tensor(dtype="float64", shape=(None,) * x.ndim) for x in cases[0]]
    outputs = _tuple(build(*tensors))
    where = tuple(range(len(outputs))) if differentiable is None else tuple(differentiable)
    cotangents = [outputs[i].type() for i in where]

    python = _value_and_pullback(tensors, outputs, where, cotangents, IN_PYTHON)
    others = [_value_and_pullback(tensors, outputs, where, cotangents, m) for m in modes]
    in_jax = []
    if jax is not None:
        in_jax.append(_jax_vjp(tensors, outputs, where))  # runs the pullback too, in JAX
    if twin is not None:
        plain = _tuple(twin(*tensors))
        twin_function = _value_and_pullback(tensors, plain, range(len(plain)), cotangents, IN_PYTHON)

    for number, inputs in enumerate(cases):
        expected = _tuple(reference(*inputs))
        bars = [rng.standard_normal(np.shape(expected[i])) for i in where]
        values, grads = python(inputs, bars)
        _compare([v for v, e in zip(values, expected, strict=True) if e is not None],
                 [e for e in expected if e is not None], rtol, "value")  # fmt: skip
        for function in others + in_jax * (number < jax_cases):
            other_values, other_grads = function(inputs, bars)
            _compare(other_values, values, rtol, "value of a back-end")
            _compare(other_grads, grads, grad_rtol, "gradient of a back-end")
        if twin is not None:
            twin_values, twin_grads = twin_function(inputs, bars)
            _compare(twin_values, [values[i] for i in where], rtol, "value of the twin")
            _compare(grads, twin_grads, grad_rtol, "gradient against automatic differentiation")
        _check_differences(python, inputs, bars, where, grads, fd_step, fd_rtol, rng)

    expected = _tuple(reference(*cases[0]))
    _check_types(build, tensors, outputs, cases[0], expected)
    if op_class is not None:
        _check_bookkeeping(op_class, build, tensors, outputs, cases[0], expected)


def _tuple(value):
    return tuple(value) if isinstance(value, tuple | list) else (value,)


@contextmanager
def _strict():
    """Object mode is an error; JAX may drop PyTensor's assertions about unknown shapes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*object mode.*")
        warnings.filterwarnings("ignore", message="Skipping Assert.*")
        yield


def _value_and_pullback(tensors, outputs, where, cotangents, mode):
    """Function (inputs, cotangents) -> values, gradients; object mode is an error."""
    known = {outputs[i]: bar for i, bar in zip(where, cotangents, strict=True)}
    grads = pt.grad(None, list(tensors), known_grads=known, disconnected_inputs="ignore")
    with _strict():
        function = pytensor.function(
            [*tensors, *cotangents], [*outputs, *grads], mode=mode, on_unused_input="ignore"
        )

    def run(inputs, bars):
        with compiled_as_one():
            found = [np.asarray(v) for v in function(*inputs, *bars)]
        return found[: len(outputs)], found[len(outputs) :]

    return run


def _jax_vjp(tensors, outputs, where):
    """The same through JAX's own reverse mode, as numpyro and blackjax take it."""
    graph = jax_funcify(FunctionGraph(list(tensors), list(outputs), clone=True))

    def forward(*inputs):
        found = _tuple(graph(*inputs))
        return tuple(found[i] for i in where), found

    @jax.jit
    def both(inputs, bars):
        _, pull, found = jax.vjp(forward, *inputs, has_aux=True)
        return found, pull(tuple(bars))

    def run(inputs, bars):
        inputs = [np.array(x, order="C") for x in inputs]  # keeps 0-d arrays 0-d
        with _strict():
            values, grads = both(tuple(inputs), tuple(bars))
        return [np.asarray(v) for v in values], [np.asarray(g) for g in grads]

    return run


def _compare(found, expected, rtol, what):
    """Entries agree within `rtol` of the largest one, gradients of that of all inputs."""
    sizes = [np.max(np.abs(b), initial=0.0) for b in expected]
    for place, (a, b) in enumerate(zip(found, expected, strict=True)):
        scale = max(sizes) if what.startswith("gradient") else sizes[place]
        message = f"{what}, place {place}"
        assert_allclose(a, b, rtol=0.0, atol=rtol * scale + 1e-300, err_msg=message)


def _check_differences(function, inputs, bars, where, grads, step, rtol, rng):
    """Directional derivatives of ``sum(bar * output)``, one input at a time."""

    def contracted(shifted):
        values, _ = function(shifted, bars)
        return sum((values[i] * bar).sum() for i, bar in zip(where, bars, strict=True))

    for k, x in enumerate(inputs):
        if x.size == 0:
            continue
        direction = rng.standard_normal(x.shape)
        sides = [
            contracted([*inputs[:k], x + sign * step * direction, *inputs[k + 1 :]]) for sign in (1, -1)
        ]
        slope = (sides[0] - sides[1]) / (2.0 * step)
        expected = (grads[k] * direction).sum()
        scale = np.sqrt((grads[k] ** 2).sum() * (direction**2).sum())
        rounding = 1e-15 * max(map(abs, sides)) / step
        assert abs(slope - expected) <= rtol * scale + 10.0 * rounding, (
            f"gradient of input {k}: differences give {slope}, the pullback {expected}"
        )


def _check_types(build, tensors, outputs, inputs, expected):
    static = [pt.tensor(dtype="float64", shape=x.shape) for x in inputs]
    for output, value in zip(_tuple(build(*static)), expected, strict=True):
        if value is not None:
            assert output.type.shape == np.shape(value), "static shape lost"

    single = [pt.tensor(dtype="float32", shape=(None,) * x.ndim) for x in inputs]
    short = [x.astype("float32") for x in inputs]
    narrow, wide = _tuple(build(*single)), outputs
    assert all(output.dtype == "float64" for output in narrow)
    cast = pytensor.function(single, narrow, mode=IN_PYTHON, on_unused_input="ignore")(*short)
    full = pytensor.function(tensors, wide, mode=IN_PYTHON, on_unused_input="ignore")
    for a, b in zip(cast, full(*(x.astype("float64") for x in short)), strict=True):
        assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.max(np.abs(b), initial=0.0))


def _check_bookkeeping(op_class, build, tensors, outputs, inputs, expected):
    used = [n.op for n in applys_between(tensors, outputs) if isinstance(n.op, op_class)]
    assert used, f"{op_class.__name__} is not used by build"

    again = [n.op for n in applys_between(tensors, _tuple(build(*tensors))) if type(n.op) is op_class]
    for op, same in zip(used, again, strict=True):
        assert op == same
        assert hash(op) == hash(same)
        assert pickle.loads(pickle.dumps(op)) == op
        assert op_class.__name__ in str(op)

    shapes = pytensor.function(
        tensors, [output.shape for output in outputs], mode=Mode("py", "fast_run"),
        on_unused_input="ignore",
    )  # fmt: skip
    left = [n.op for n in shapes.maker.fgraph.apply_nodes if isinstance(n.op, op_class)]
    assert not left, "infer_shape leaves the Op in the shape graph"
    for found, value in zip(shapes(*inputs), expected, strict=True):
        if value is not None:
            assert tuple(found) == np.shape(value)


def check_feature_map(gp, X: np.ndarray, *, point=None, model=None, tol: float = 1e-8):
    """Check a method's features at X (n, d): shape, positivity, and the variance they leave.

    Parameters
    ----------
    gp : a GP of this package
        Built already, or else built on X.
    X : array, shape (n, d)
    point, model : dict and pm.Model, optional
        Values of the hyperparameters.
    tol : float
        Relative to the prior variance.

    Returns
    -------
    phi : array, shape (n, r)
    """
    symbolic = gp.features(X)
    phi, diag = evaluate([symbolic, gp.feature_map.kernel_diag(pt.constant(X))], point, model)
    assert phi.shape == (X.shape[0], gp.rank)
    assert np.isfinite(phi).all()
    gram = phi @ phi.T
    values = np.linalg.eigvalsh(gram)
    assert values.min() >= -1e-12 * values.max()
    assert np.linalg.matrix_rank(gram) <= gp.rank
    missed = diag - np.diag(gram)
    assert missed.min() >= -tol * diag.max(), f"features exceed the prior variance: {missed.min()}"
    return phi


def check_marginal_logp(
    gp, model, name: str = "y", *, points=None, mode=None, rtol: float = 1e-8, grad_rtol: float = 1e-6
) -> list[float]:
    """Check a marginal likelihood and its gradient against a dense multivariate normal.

    The dense density uses the GP's own features, mean and noise, and ``approx``; its gradient is
    automatic differentiation.

    Parameters
    ----------
    gp : a GP of this package
        After ``marginal_likelihood`` in `model`.
    model : pm.Model
    name : str
        Name of the observed variable.
    points : sequence of dict, optional
        Values of the model's value variables; the initial point and one near it when left out.
    mode : compilation mode, optional
        Back-end of the GP's likelihood; PyTensor's default when left out.
    rtol, grad_rtol : float
        Relative tolerances of value and gradient.

    Returns
    -------
    list of float
        The log densities.
    """
    inputs, start = model.value_vars, model.initial_point(0)
    if points is None:
        rng = np.random.default_rng(0)
        near = {k: v + 0.2 * rng.standard_normal(np.shape(v)) for k, v in start.items()}
        points = [start, near] if inputs else [{}]

    def compiled(value, mode):
        grads = pt.grad(value, inputs, disconnected_inputs="ignore") if inputs else []
        return pytensor.function(inputs, [value, *grads], mode=mode, on_unused_input="ignore")

    (dense,) = model.replace_rvs_by_values([dense_logp(gp)])
    function = compiled(model.logp(vars=[model[name]], sum=True), mode)
    twin = compiled(dense, IN_PYTHON)
    found = []
    for point in points:
        values = [np.asarray(point[v.name]) for v in inputs]
        (value, *grads), (expected, *twin_grads) = function(*values), twin(*values)
        assert_allclose(value, expected, rtol=rtol, err_msg="log density")
        _compare(grads, twin_grads, grad_rtol, "gradient of the log density")
        found.append(float(value))
    return found


def dense_logp(gp):
    """Log density of the fit's targets under the dense covariance, as a PyTensor graph."""
    data = gp.training.data
    X, y = data.X.tensor, data.y.tensor
    phi = data.feature_map.features(X)
    diag = data.feature_map.kernel_diag(X).astype("float64")
    weights = pt.ones(phi.shape[1]) if data.weights is None else data.weights
    low = (phi * weights) @ phi.T
    missed = pt.maximum(diag - pt.diag(low), 0.0)
    noise = pt.ones_like(y) * data.sigma**2
    full = low + pt.diag(noise + (missed if data.approx == "FITC" else 0.0))
    bound = -0.5 * (missed / noise).sum() if data.approx == "VFE" else 0.0
    return pm.logp(pm.MvNormal.dist(data.mean, full), y) + bound
