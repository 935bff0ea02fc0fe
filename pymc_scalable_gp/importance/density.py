"""A model's log density and its gradient as functions of one flat vector."""

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import cached_property
from time import perf_counter

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions import transforms
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.initial_point import make_initial_point_fn
from pymc.ode import DifferentialEquation
from pymc.pytensorf import collect_default_updates, reseed_rngs
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.inner_function import HasInnerFunction
from pytensor.compile.mode import get_mode
from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.traversal import ancestors

from pymc_scalable_gp.ops._by_ops import some_calls
from pymc_scalable_gp.utils.compiled import TURN, ZERO_OUTSIDE, as_point, compiled, in_jax
from pymc_scalable_gp.utils.graphs import draws_numbers, on_vector, raveled
from pymc_scalable_gp.utils.internals import compiled_as_one
from pymc_scalable_gp.utils.threads import ForThreads

MOST_PARAMETERS = 50
# Packages whose operations threads may run side by side, from Python.
KNOWN = ("pytensor", "pymc", "pymc_extras", "pymc_scalable_gp")


class Graphs:
    """Graphs of a log density on the unconstrained space, compiled when they are first asked for.

    `smooth` is what is differentiated in the place of `logp`, both scalars of the vector `theta` (p,). With
    `by_ops` the Ops alone are machine code, which all models share, and threads run side by side; what
    stands between them is Python.
    Instances can be pickled: what was compiled stays behind.
    """

    def __init__(self, theta, logp, smooth, by_ops: bool = False):
        self.theta, self.logp, self.smooth, self.by_ops = theta, logp, smooth, by_ops
        # By name, for the workers that know no other than the default.
        self.mode = pytensor.config.mode
        self._functions: dict = {}

    def __getstate__(self):
        return self.__dict__ | {"_functions": {}}

    def function(self, kind: str) -> ForThreads:
        """Compiled function of a vector: "density", or "gradient" for (density, gradient)."""
        with TURN:
            if kind not in self._functions:
                outputs = [self.logp]
                if kind == "gradient":
                    outputs = [self.smooth, pt.grad(self.smooth, self.theta, disconnected_inputs="ignore")]
                mode = get_mode(self.mode).register(ZERO_OUTSIDE)
                mode = some_calls(self.mode) if self.by_ops else mode
                self._functions[kind] = ForThreads([self.theta], outputs, mode=mode)
        return self._functions[kind]

    def rows(self, kind: str, points: np.ndarray) -> np.ndarray:
        """Values at each of `points` (n, p): (n, 1) densities, or (n, 1 + p) with gradients."""
        found = []
        for point in points:
            is_new = kind not in self._functions and not self.by_ops
            function = self.function(kind)
            with compiled_as_one() if is_new else nullcontext():
                found.append(np.hstack([np.ravel(v) for v in function(point)]))
        return np.array(found).reshape(len(points), -1)


class Density:
    r"""Log density of a model's unconstrained free variables given its data.

    With ``T`` the transforms, ``theta = (T_1(v_1), ..., T_k(v_k))`` raveled, and the density is
    ``log p(y, v(theta)) + log |dv / dtheta|``, whose integral over ``theta`` is the evidence.

    `logp`, a scalar of the model's value variables, takes the place of the model's own log density, and
    `smooth`, a scalar close to it, is differentiated in its place. Raises ValueError without free
    variables, with discrete or circular ones, or with more than 50 in all.
    """

    def __init__(self, model: pm.Model, logp=None, smooth=None):
        self.model = model
        self._point = checked_point(model)
        self.initial = self.flat(self._point)
        theta = pt.vector("theta", dtype="float64", shape=(self.size,))
        logp = model.logp() if logp is None else logp
        both = [logp, logp if smooth is None else smooth]
        if draws_numbers(logp):
            raise ValueError(
                "the log density draws random numbers, as pm.Minibatch does, and importance sampling needs "
                "one that is the same at each evaluation: observe all rows"
            )
        self.is_smooth = smooth is None
        by_ops = not in_jax() and _is_known(logp)
        self.graphs = Graphs(theta, *self._on_vector(theta, both), by_ops)
        self.where = self.graphs.rows  # or another function that evaluates many points side by side
        self.evaluations, self.gradients, self.seconds = 0, 0, 0.0
        self.failed: list[np.ndarray] = []  # points where it was NaN

    @property
    def size(self) -> int:
        """Number p of unconstrained parameters."""
        return len(self.initial)

    @property
    def flat_priors(self) -> str:
        """Names and lengths of variables whose prior has no constant; none beside potentials.

        A potential may be their prior.
        """
        values, free = self.model.rvs_to_values, [] if self.model.potentials else self.model.free_RVs
        flat = [v for v in free if isinstance(v.owner.op, FlatRV | HalfFlatRV)]
        return ", ".join(sorted(f"{v.name} ({np.size(self._point[values[v].name])})" for v in flat))

    def flat(self, point) -> np.ndarray:
        """Vector (p,) of a point of unconstrained values by name."""
        return raveled(self.model.value_vars, point)

    def start(self, point) -> np.ndarray:
        """Vector (p,) of a point of values, transformed or not; those left out are the initial point's."""
        point = as_point(point, "start")
        names = {v.name for v in self.model.free_RVs}
        unknown = sorted(set(point) - names - set(self.model.named_vars) - set(self._point))
        if unknown:
            raise ValueError(
                f"start has {', '.join(unknown)}, which the model does not know; its free variables "
                f"are {', '.join(sorted(names))}"
            )
        given = {name: np.asarray(value) for name, value in point.items() if name in names}
        shapes = self.model.eval_rv_shapes()
        for name, value in given.items():
            if value.shape != (expected := tuple(map(int, shapes[name]))):
                raise ValueError(f"start has {name} of shape {value.shape}, expected {expected}")
        for name in set(self._point) & set(point):
            if (came := np.shape(point[name])) != (expected := np.shape(self._point[name])):
                raise ValueError(f"start has {name} of shape {came}, expected {expected}")
        found = make_initial_point_fn(model=self.model, overrides=given)(0)
        of_values = {v.name: rv.name for rv, v in self.model.rvs_to_values.items()}
        found |= {v: point[v] for v in set(self._point) & set(point) if of_values[v] not in given}
        theta = self.flat(found)
        if not np.isfinite(theta).all():
            raise ValueError("start lies outside the priors' support: give values within it")
        return theta

    def farthest(self, theta: np.ndarray) -> str:
        """Name and value of the parameter that is farthest from 0 in `theta` (p,)."""
        names = [v.name for v in self.model.value_vars for _ in range(np.size(self._point[v.name]))]
        at = int(np.argmax(np.abs(theta)))
        return f"{names[at]} = {theta[at]:.3g}"

    def unconstrained(self, draws: list[list[np.ndarray]]) -> np.ndarray:
        """Vectors (n, p) of `draws`, each with the untransformed values of ``model.free_RVs``."""
        free = self.model.free_RVs
        outputs = []
        for rv in free:
            transform = self.model.rvs_to_transforms[rv]
            outputs.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
        function = compiled(list(free), outputs)
        return np.array(
            [np.concatenate([np.ravel(v) for v in function(*each)]) for each in draws], float
        ).reshape(-1, self.size)

    def from_prior(self, count: int, rng, centre=None, reach=2.0) -> np.ndarray:
        """Vectors (count, p) drawn from the prior; fewer where draws put others' parameters out of range.

        If that is improper, or none is left, from within `reach` (p,) of a `centre` (p,), by default the
        initial point.
        """
        found = []
        with suppress(NotImplementedError):
            for seed in rng.integers(2**31, size=count):
                with suppress(ValueError):
                    found.append(self.flat(self._prior(int(seed))))
        found = [each for each in found if not np.isnan(each).any()]
        if not found:
            centre = self.initial if centre is None else centre
            return centre + reach * rng.uniform(-1.0, 1.0, (count, self.size))
        return np.array(found)

    def values(self, points: np.ndarray) -> np.ndarray:
        """Log densities (n,) at `points` (n, p); -inf where they are NaN, which is counted."""
        self.evaluations += len(points)
        return self._found("density", points)[:, 0]

    def with_gradients(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log densities (n,) and gradients (n, p) at `points` (n, p)."""
        self.gradients += len(points)
        found = self._found("gradient", points)
        return found[:, 0] if self.is_smooth else self.values(points), found[:, 1:]

    def slopes(self, points: np.ndarray) -> np.ndarray:
        """Gradients (n, p) at `points` (n, p), where densities are known."""
        self.gradients += len(points)
        return self._found("gradient", points)[:, 1:]

    def shown(self, draws: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
        """Free variables and Deterministics, by name, at `draws` (..., p).

        What Deterministics draw themselves, as a new group's effect, is drawn anew for each, by `seed`.
        """
        wanted = self.model.unobserved_value_vars
        names = {v.name for v in self.model.free_RVs} | {v.name for v in self.model.deterministics}
        wanted = [v for v in wanted if v.name in names]
        theta = pt.vector("theta", dtype="float64", shape=(self.size,))
        outputs = self._on_vector(theta, wanted)
        updates = collect_default_updates(outputs)
        reseed_rngs(list(updates), seed)
        function = compiled([theta], outputs, updates=updates)
        rows = [function(point) for point in draws.reshape(-1, self.size)]
        lead = draws.shape[:-1]
        return {
            v.name: np.reshape(each, (*lead, *np.shape(each[0])))
            for v, each in zip(wanted, zip(*rows, strict=True), strict=True)
        }

    @cached_property
    def _prior(self):
        """A function of a seed that draws a point from the prior; NotImplementedError if it is improper."""
        drawn = {rv.name: "prior" for rv in self.model.free_RVs}  # whatever initval they have
        return make_initial_point_fn(model=self.model, overrides=drawn)

    def _on_vector(self, theta, outputs):
        return on_vector(outputs, theta, self.model.value_vars, self._point)

    def _found(self, kind, points):
        """What `Graphs.rows` returns, with NaN or +inf among the densities as -inf."""
        begin = perf_counter()
        found = (self.where if len(points) > 1 else self.graphs.rows)(kind, points)
        self.seconds += perf_counter() - begin
        bad = np.isnan(found[:, 0]) | np.isposinf(found[:, 0])
        self.failed.extend(points[bad])
        found[bad, 0] = -np.inf
        return found


def _is_known(graph) -> bool:
    """Whether all operations of a graph may run in Python, in several threads.

    Not a user's loops, whose steps would take long there, nor a user's own operations, nor those that call
    one compiled function, as solvers do: its inputs are those of all threads.
    """
    ops = list(_operations([graph]))
    packages = {type(op).__module__.split(".")[0] for op in ops}
    return packages <= set(KNOWN) and not any(
        isinstance(op, FromFunctionOp | DifferentialEquation)
        or (isinstance(op, HasInnerFunction) and not isinstance(op, OpFromGraph))
        for op in ops
    )


def _operations(outputs) -> Iterator:
    """Operations of graphs: of vectorised ones what each entry has, and those that others are made of."""
    for v in ancestors(outputs):
        if v.owner is not None:
            op = v.owner.op
            op = getattr(op, "core_op", getattr(op, "scalar_op", op))
            yield op
            if isinstance(op, OpFromGraph):
                yield from _operations(op.inner_outputs)


def checked_point(model: pm.Model) -> dict:
    """The model's initial point; raise ValueError where importance sampling does not apply."""
    if not model.free_RVs:
        raise ValueError(
            "the model has no free variables: there is no posterior to sample; pm.sample needs one too"
        )
    discrete = [rv.name for rv in model.free_RVs if np.dtype(rv.dtype).kind != "f"]
    if discrete:
        raise ValueError(
            f"{', '.join(discrete)}: importance sampling needs continuous free variables; sample "
            "discrete ones with pm.sample"
        )
    chains = {rv.name: getattr(t, "transform_list", [t]) for rv, t in model.rvs_to_transforms.items()}
    wraps = transforms.CircularTransform
    circular = [name for name, chain in chains.items() if any(isinstance(t, wraps) for t in chain)]
    if circular:
        raise ValueError(
            f"{', '.join(circular)}: importance sampling needs variables on a line, and a circular one's "
            "density repeats itself there without end; sample it with pm.sample"
        )
    initial = model.initial_point(0)
    size = sum(np.size(initial[v.name]) for v in model.value_vars)
    if not size:
        raise ValueError(
            "the model's free variables have no entries, as of a dimension of length 0: there is no "
            "posterior to sample"
        )
    if size > MOST_PARAMETERS:
        raise ValueError(
            f"the model has {size} free parameters, and importance sampling takes at most "
            f"{MOST_PARAMETERS}: {_remedy(model)}"
        )
    return initial


def _remedy(model: pm.Model) -> str:
    """What to do about too many free variables: those that no data depend on may come later."""
    used = set(ancestors([*model.observed_RVs, *model.potentials]))
    later = [rv.name for rv in model.free_RVs if rv not in used]
    if not later:
        return "use pm.sample"
    return (
        f"no data depend on {', '.join(later)}; add what predicts, as gp.conditional does, after sampling, "
        "and draw it by pm.sample_posterior_predictive"
    )
