"""A fitted GP's predictions as numbers and names, for `exported.py` to read."""

import json
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
from pymc.gp import cov, mean
from pymc.gp.cov import BaseCovariance

from pymc_scalable_gp.core.data.draws import EXPORTED, at_most, posterior_draws, refuse_failed
from pymc_scalable_gp.core.likelihoods.exact import ExactRows
from pymc_scalable_gp.core.vecchia.likelihood import NeighborRows
from pymc_scalable_gp.exported import FORMAT, MARK
from pymc_scalable_gp.utils.archive import write_archive
from pymc_scalable_gp.utils.blocks import with_progress
from pymc_scalable_gp.utils.compiled import check_reached, compiled, present_shape
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.internals import parts_of

# Parameters, by name, of the kernels that a file holds.
KERNELS = {
    **dict.fromkeys((cov.ExpQuad, cov.Matern12, cov.Exponential, cov.Matern32), ("ls",)),
    **dict.fromkeys((cov.Matern52, cov.Cosine), ("ls",)),
    cov.RatQuad: ("ls", "alpha"),
    cov.Periodic: ("ls", "period"),
    cov.Linear: ("c",),
    cov.Polynomial: ("c", "d", "offset"),
    cov.Constant: ("c",),
}

_MOST_BYTES = 2**30


class Parameters(list):
    """Symbolic parameters of a kernel and a mean; the names hold their places."""

    def places(self, owner: str, longest: int, **values) -> dict[str, int]:
        """Places of some more, scalars or vectors of at most `longest` entries."""
        found = {}
        for name, value in values.items():
            tensor = pt.as_tensor_variable(value).astype("float64")
            shape = present_shape(tensor)
            if len(shape) > 1 or (longest == 1 and shape not in ((), (1,))):
                raise ValueError(f"{owner} has {name} of shape {shape}, which no file can hold")
            found[name] = len(self)
            self.append(tensor)
        return found

    def kernel(self, kernel) -> dict:
        """The names of a kernel."""
        kind, name = type(kernel), type(kernel).__name__
        if not isinstance(kernel, BaseCovariance):
            return {"kind": "Constant", "values": self.places("cov_func", 1, c=kernel)}
        if kind in (cov.Add, cov.Prod):
            return {"kind": name, "parts": [self.kernel(part) for part in parts_of(kernel)]}
        if kind is cov.Exponentiated:
            power = self.places("the power of a kernel", 1, power=kernel.power)
            return {"kind": name, "parts": [self.kernel(kernel.kernel)], "values": power}
        if kind not in KERNELS:
            known = ", ".join(each.__name__ for each in KERNELS)
            raise ValueError(
                f"cov_func holds {name}, which no file can hold: a predictor is exported with sums, "
                f"products and powers of {known} of pm.gp.cov. Save the draws and write the model again"
            )
        dims = [int(a) for a in getattr(kernel, "active_dims", ())]
        values = {each: getattr(kernel, each) for each in KERNELS[kind]}
        name = "ExpQuad" if kind is cov.Periodic else name
        return {"kind": name, "dims": dims, "values": self.places(name, len(dims), **values)}

    def mean(self, function) -> dict:
        """The names of a mean function."""
        kind, name = type(function), type(function).__name__
        if kind is mean.Zero:
            return {"kind": "Add", "parts": []}
        if kind is mean.Constant:
            return {"kind": name, "values": self.places("the Constant mean", 1, c=function.c)}
        if kind is mean.Linear:
            found = self.places("the Linear mean", 2, coeffs=function.A)
            return {"kind": name, "values": found | self.places("the Linear mean", 1, intercept=function.b)}
        if kind in (mean.Add, mean.Prod):
            parts = [self.mean(part) for part in (function.m1, function.m2)]
            return {"kind": name, "parts": parts}
        raise ValueError(
            f"mean_func holds {name}, a function that no file can hold: a predictor is exported with "
            "sums and products of Zero, Constant and Linear of pm.gp.mean. Subtract it from y before the "
            "fit, or save the draws and write the model again"
        )


class Export:
    """What a file holds of a GP: refused here, before anything is compiled, where it cannot."""

    def __init__(self, gp, rows):
        feature_map = rows.prediction_map()
        points = feature_map.projection()
        exact = isinstance(rows, ExactRows)
        if not exact and (points is None or getattr(rows, "is_exact", False)):
            raise ValueError(
                f"{type(gp).__name__} predicts from what no file can hold: "
                f"{gp.names_with('export')} can be exported, and with exact=True the exact Gaussian "
                "process of any class"
            )
        place, self.weights = (rows.X.tensor, None) if exact else points
        if is_random(rows.X.tensor, place):
            raise ValueError("inputs or inducing points with a prior cannot be exported")
        if exact and rows.data.noise_cov is not None:
            raise ValueError(
                "noise with a kernel cannot be exported: save the draws and write the model again"
            )
        self.exact, self.parameters = exact, Parameters()
        kernel = self.parameters.kernel(rows.cov_func if exact else feature_map.cov_func)
        self.shared, self.near = {"points": compiled([], [place])()[0]}, 0
        if isinstance(rows, NeighborRows) and rows.plan.ordering.count:
            ordering = rows.plan.ordering
            self.near = min(ordering.count, len(ordering.order))
            inputs = compiled([], [rows.inputs])()[0]  # refused where others replaced them
            self.shared |= neighborhood(ordering, inputs)
        self.settings = {
            "class": type(gp).__name__, "inputs": rows.X.value.shape[1], "neighbors": self.near,
            "columns": rows.X.columns,
            "kernel": kernel, "mean": self.parameters.mean(gp.mean_func),
            "parameters": len(self.parameters),
        }  # fmt: skip

    def arrays(self, predictor, idata, num_samples, noisy, progressbar, random_seed) -> dict:
        """The numbers: those of each draw, by name, and what all draws share."""
        rng = np.random.default_rng(random_seed)
        count = at_most(idata, num_samples, EXPORTED)
        draws = posterior_draws(idata, predictor.inputs, predictor.model, count, rng)
        outputs = [*self.parameters] + ([] if self.exact else [self.weights])
        check_reached(outputs, predictor.inputs)
        if self.exact:  # known before a factor of n rows is taken
            _refuse_large(8 * len(self.shared["points"]) ** 2, len(draws), exact=True)
        numbers, found = compiled(predictor.inputs, outputs), []
        for values in with_progress(draws.values, "Exporting draws", len(draws), progressbar):
            state = predictor.at(values)
            found.append(self._of_draw(state, numbers(*values), noisy))
            size = sum(array.nbytes for array in found[0].values())
            _refuse_large(size, len(draws), self.exact)
        refuse_failed([any(np.isnan(v).any() for v in each.values()) for each in found], "prediction")
        self.settings["draws"] = len(draws)
        arrays = {name: np.stack([each[name] for each in found]) for name in found[0]}
        if self.near and not np.ptp(arrays["row_noise"], axis=1).any():
            arrays["row_noise"] = arrays["row_noise"][:, 0]
        return arrays | self.shared

    def _of_draw(self, state, numbers, noisy) -> dict:
        found = {f"parameter_{i}": v for i, v in enumerate(numbers[: len(self.parameters)])}
        if self.exact:
            *_, weights, coef = state.values
        else:
            weights, coef = numbers[-1], state.coef
        found |= {"weights": weights, "coef": coef}
        if state.root is not None:
            found["root"] = state.root
        if noisy:
            found["noise"] = state.noise
        if self.near:
            *_, found["residual"], found["row_noise"], _ = state.values
        return {name: np.asarray(value, dtype=float) for name, value in found.items()}

    def write(self, path: Path, arrays: dict) -> Path:
        """Write a file of this name."""
        write_archive(path, mark=MARK, format=FORMAT, settings=json.dumps(self.settings), **arrays)
        return path


def _refuse_large(size: int, draws: int, exact: bool) -> None:
    """Raise ValueError if `draws` draws of `size` bytes each are more than a file shall hold."""
    if draws * size <= _MOST_BYTES:
        return
    smaller = "a class with inducing points, without exact=True" if exact else "fewer inducing points"
    fewer = f"give num_samples={_MOST_BYTES // size} or fewer, or take " if size <= _MOST_BYTES else "take "
    raise ValueError(
        f"{draws} draws of {size / 2**30:.2g} GiB each are more than the 1 GiB that a file may hold: "
        f"{fewer}{smaller}"
    )


def neighborhood(ordering, rows) -> dict:
    """Training rows, and coordinates in which neighbours are near: a linear function of inputs."""
    metric, origin = ordering.metric, rows.mean(axis=0)
    steps = np.where(np.ptp(rows, axis=0) > 0.0, np.ptp(rows, axis=0), 1.0)
    zero = metric.coordinates(origin[None])
    axes = (metric.coordinates(origin + np.diag(steps)) - zero) / steps[:, None]
    placed = metric.coordinates(rows) - zero
    if not np.allclose(placed, (rows - origin) @ axes, atol=1e-9 * np.abs(placed).max()):
        raise ValueError(
            "neighbours under this kernel are not looked for in scaled inputs, but in features of them, "
            "which no file holds: give exact=True, or take a class without neighbors"
        )
    return {"rows": rows, "origin": origin, "axes": axes}
