"""Posterior draws of one case for one data set after another."""

import warnings

import arviz as az
import numpy as np
import nutpie
import pymc as pm
from calibration.ranks import DRAWS, rank_of
from numpy.testing import assert_allclose
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs

import pymc_scalable_gp as sgp

TUNE, THIN = 300, 6
WANTED_ESS = 2 * DRAWS  # among DRAWS * THIN draws, so that the thinned ones are nearly independent


def sampler_of(case):
    """What makes the draws of a case."""
    return Weighted(case) if case.weights else Fitted(case)


class Ranks:
    """Ranks of a case's data sets among draws of :meth:`sample`, which is given by a subclass.

    ``sample(y, seed)`` gives `DRAWS` draws of one chain, and figures to be stored beside the ranks.
    """

    case = model = gp = None
    options: dict = {}  # of predictions

    def replicate(self, truth, f, y, rng) -> dict[str, int]:
        """Ranks of a data set's truth among the posterior draws."""
        draws, found = self.sample(y, int(rng.integers(2**31)))
        for label, (name, place) in self.case.quantities.items():
            column = draws[name].values[0][(slice(None), *place)]
            found[label] = rank_of(np.asarray(truth[name])[place], column)
        new = self.gp.predict_posterior(
            self.case.problem.Xnew, draws, draws=True, model=self.model, progressbar=False,
            random_seed=int(rng.integers(2**31)), **self.options,
        )  # fmt: skip
        for j, value in enumerate(f):
            found[f"f[{j}]"] = rank_of(value, new["f"].values[0, :, j])
        return found


class Weighted(Ranks):
    """Draws by importance sampling, corrected where the case asks for it, of one model after another.

    A replication whose k-hat is above .7 counts as a divergence.
    """

    def __init__(self, case):
        self.case = case
        self.options = {"exact": True} if case.correct == "exact" else {}

    def sample(self, y, seed):
        """`DRAWS` of the equally weighted draws, at random."""
        self.model, self.gp = self.case.model(y)
        quiet = {"cores": 1, "progressbar": False, "random_seed": seed}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a large k-hat, which is counted
            idata = sgp.sample_importance(model=self.model, **quiet)
            if self.case.correct:
                with self.model:
                    idata = self.gp.correct(idata, target=self.case.correct, **quiet)
        posterior = idata["posterior"].to_dataset()
        flat = posterior.stack(all=("chain", "draw")).reset_index("all")
        chosen = np.random.default_rng(seed).permutation(flat.sizes["all"])[:DRAWS]
        if len(chosen) < DRAWS:
            raise RuntimeError(f"only {len(chosen)} draws, of {DRAWS}: ask for more")
        one = flat.isel(all=chosen).drop_vars(("chain", "draw")).rename(all="draw")
        found = idata["posterior"].attrs
        figures = {"ess": int(found["ess"]), "divergences": int(found["khat"] > 0.7)}
        return one.transpose("draw", ...).expand_dims("chain"), figures


class Fitted(Ranks):
    """Draws by NUTS, of a model that is compiled once."""

    def __init__(self, case):
        self.case = case
        self.model = self.gp = self.compiled = self.places = None
        self.is_first, self.checked = True, False

    def sample(self, y, seed):
        """`DRAWS` nearly independent draws; effective sample size and divergences of all."""
        compiled = self.given(y)
        for thin in (THIN, 3 * THIN, 9 * THIN):
            idata = nutpie.sample(
                compiled, draws=thin * DRAWS, tune=TUNE, chains=1, cores=1, progress_bar=False,
                seed=seed, save_warmup=False, adaptation=self.case.adaptation,
            )  # fmt: skip
            posterior = idata["posterior"].to_dataset()
            ess = min(float(v.min()) for v in az.ess(posterior).data_vars.values())
            if ess >= WANTED_ESS:
                break
        stats = idata["sample_stats"]
        if not (self.is_first or self.checked):
            self.check(y, posterior, float(stats["logp"][0, -1]))
        found = {"ess": int(ess), "divergences": int(stats["diverging"].sum())}
        return posterior.isel(draw=slice(thin - 1, None, thin)), found

    def given(self, y):
        """The compiled model with other data."""
        if self.compiled is None:
            self.model, self.gp = self.case.model(y)
            self.compiled = nutpie.compile_pymc_model(self.model)
            self.places = places(self.compiled, shared_values(self.model))
            return self.compiled
        self.is_first = False
        if not self.case.renew:
            with self.model:
                pm.set_data({"targets": y})
            return self.compiled.with_data(targets=y)
        self.model, self.gp = self.case.model(y)
        values = shared_values(self.model)
        return self.compiled.with_data(**{name: values[j] for name, j in self.places.items()})

    def check(self, y, posterior, logp):
        """The density that the sampler saw, with other data, is that of a model made of these data."""
        fresh, _ = self.case.model(y)
        point = {}
        for variable, value in fresh.rvs_to_values.items():
            if variable in fresh.free_RVs:
                last = posterior[variable.name].values[0, -1]
                point[value.name] = np.log(last) if value.name.endswith("_log__") else last
        assert_allclose(logp, fresh.compile_logp(mode="FAST_COMPILE")(point), rtol=1e-6, atol=1e-6)
        self.checked = True


def shared_values(model) -> list[np.ndarray]:
    """Values of a density's shared variables, in the order of its graph: equal for equal graphs."""
    inputs = graph_inputs([model.logp()])
    return [v.get_value() for v in inputs if isinstance(v, SharedVariable)]


def places(compiled, values) -> dict[str, int]:
    """Where each shared value of a compiled model stands among those of its density.

    A density that summarises y holds the summary in variables that are made, and named, at each
    derivation of the graph: equal values tell which is which.
    """
    held = {variable.name: compiled.shared_data[key] for variable, key in compiled.shared_var_keys.items()}
    return {
        name: next(j for j, value in enumerate(values) if np.array_equal(value, own))
        for name, own in held.items()
    }
