"""The free variables that graphs of a model depend on, as one flat vector."""

from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.initial_point import make_initial_point_fn
from pytensor.graph.traversal import ancestors

from pymc_scalable_gp.utils.compiled import as_point, check_names, check_reached, compiled
from pymc_scalable_gp.utils.graphs import on_vector, raveled
from pymc_scalable_gp.utils.lbfgs import lowest

# Where there is a transform L-BFGS stays this near to its start: a factor e^10 of what is positive.
REACH = 10.0


class Hyperparameters:
    r"""Free random variables of a model as a flat vector ``theta`` (p,) of unconstrained values.

    Those of `model` that `outputs` depend on are taken, and their parents; without a model nothing is
    free. With ``T`` the transforms, ``theta = (T_1(v_1), ..., T_k(v_k))``, raveled; the prior is that of
    the untransformed values (without the Jacobian), so that its maximum is ``pm.find_MAP``'s.

    Raises ValueError if one of them is discrete, which has no gradient, or of another model.
    """

    def __init__(self, outputs, model: pm.Model | None):
        reached = set(ancestors(outputs))
        self.model = model
        if model is not None:
            check_reached(outputs, model.basic_RVs)
        self.free = [] if model is None else [rv for rv in model.free_RVs if rv in reached]
        discrete = [rv.name for rv in self.free if np.dtype(rv.dtype).kind != "f"]
        if discrete:
            raise ValueError(
                f"{', '.join(discrete)}: discrete hyperparameters have no gradient: give numbers "
                "in their place, and make the GP with these"
            )
        self._values = [model.rvs_to_values[rv] for rv in self.free]
        self._point = model.initial_point(0) if self.free else {}
        self.initial = raveled(self._values, self._point)
        self._untransform: Callable | None = None

    @property
    def names(self) -> list[str]:
        """Names of the variables."""
        return [rv.name for rv in self.free]

    @property
    def size(self) -> int:
        """Length p of the vector."""
        return len(self.initial)

    def as_functions_of(self, theta, outputs: list) -> list:
        """`outputs` with the vector `theta` (p,), symbolic or shared, in the variables' place."""
        if not self.free:
            return list(outputs)
        return self._on_vector(theta, self.model.replace_rvs_by_values(outputs))

    def log_prior(self, theta):
        """Log density of the untransformed values under their priors, a scalar; 0 if none is free."""
        if not self.free:
            return pt.constant(0.0)
        return self._on_vector(theta, [self.model.logp(vars=self.free, jacobian=False)])[0]

    def start(self, point: Mapping | None = None) -> np.ndarray:
        """Flat values (p,) of a point of untransformed values, by name.

        The model's initial point stands in for variables that `point` lacks; names that are none of
        the variables are passed over, as a point may come with more than these graphs need, unless the
        model does not know them and they resemble what is lacking.

        Raises ValueError for such names, a value of another shape, outside its prior's support, or
        unconstrained alone.
        """
        point = as_point(point)
        # As arrays: PyTensor tries Python's numbers in half precision first, where large ones overflow.
        given = {name: np.asarray(point[name], float) for name in self.names if name in point}
        if self.free:
            lacking = [rv for rv in self.free if rv.name not in given]
            check_names(point, lacking, self.model, whole=False)
        if not given:
            return self.initial.copy()
        initial = self.untransformed(self.initial)
        for name, value in given.items():
            if value.shape != initial[name].shape:
                raise ValueError(
                    f"point[{name!r}] has shape {value.shape}, but the variable has shape "
                    f"{initial[name].shape}"
                )
        make = make_initial_point_fn(model=self.model, overrides=given)
        theta = raveled(self._values, make(0))
        if not np.isfinite(theta).all():
            raise ValueError(
                f"point lies outside the priors' support, at {_in_words(given)}: give values within it"
            )
        return theta

    def from_prior(self, count: int, rng) -> list[np.ndarray]:
        """Flat values (p,) of draws from the prior; none of an improper one."""
        drawn = {name: "prior" for name in self.names}
        with suppress(NotImplementedError, ValueError):
            make = make_initial_point_fn(model=self.model, overrides=drawn)
            return [raveled(self._values, make(int(seed))) for seed in rng.integers(2**31, size=count)]
        return []

    def untransformed(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Values of the variables at `theta` (p,), by name."""
        if not self.free:
            return {}
        if self._untransform is None:
            shown = {v.name: v for v in self.model.unobserved_value_vars}
            vector = pt.vector("theta", dtype="float64", shape=(self.size,))
            found = self._on_vector(vector, [shown[name] for name in self.names])
            self._untransform = compiled([vector], found)
        found = self._untransform(np.asarray(theta, dtype="float64"))
        return {name: np.asarray(v) for name, v in zip(self.names, found, strict=True)}

    def in_words(self, theta: np.ndarray) -> str:
        """The untransformed values at `theta`, for a message."""
        return _in_words(self.untransformed(theta))

    def minimize(self, objective, start, *, maxiter, **options) -> tuple[np.ndarray, float]:
        """Where `lowest` finds the lowest value of `objective`, and that value; see `REACH`."""
        reach = [
            np.full(np.size(self._point[v.name]), REACH if self.model.rvs_to_transforms[rv] else np.inf)
            for rv, v in zip(self.free, self._values, strict=True)
        ]
        reach = np.concatenate([np.zeros(0), *reach])
        return lowest(objective, start, maxiter=maxiter, reach=reach, **options)[:2]

    def _on_vector(self, theta, outputs):
        """`outputs`, graphs of the value variables, with slices of `theta` in their place."""
        return on_vector(outputs, theta, self._values, self._point)


def _in_words(point) -> str:
    return ", ".join(
        f"{name} = {np.array2string(np.asarray(value), precision=4, threshold=6)}"
        for name, value in point.items()
    )
