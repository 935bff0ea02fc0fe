"""Classes and settings that come into question for the data and the kernel."""

from dataclasses import dataclass, replace
from typing import Any

from pymc_scalable_gp.advice.facts import Facts
from pymc_scalable_gp.importance.density import MOST_PARAMETERS

# Classes of exact likelihoods, at whatever hyperparameters.
EXACT = ("ExactMarginal", "StateSpaceMarginal")

# With more rows, a dense exact GP and a latent variable for each row are not listed. Fewer rows cannot
# train SoftKI's points, and in fewer inputs its weights are too wide.
MOST_ROWS, LEAST_SOFTKI_ROWS, LEAST_SOFTKI_INPUTS = 20_000, 5000, 4

# Inputs for which SKIP is listed, and up to which neighbours without inducing points are; nodes of a column
# in GriefGP's finest grids, and so its rank in one input.
SKIP_INPUTS, NEAR_INPUTS, MOST_NODES = range(2, 7), 3, 200

# Distinct rows up to which as many features as these are listed, where rows repeat.
MOST_REPEATED = 200

# KMCG's features on a grid under another likelihood.
CELL_RANKS = (200, 500)

# Gradients per draw of NUTS: for more parameters than importance sampling takes, for a few hundred
# coefficients, and for a variable for each row. A chain has so many draws and tunes the sampler with more.
STEPS, STEPS_COEFFICIENTS, STEPS_ROWS = 15, 31, 127
DRAWS, TUNE = 400, 1000

# What importance sampling takes instead, with an effective sample size of 400: some 60 gradients and 600
# densities, each a third of a gradient. bench_importance.py.
WEIGHED = 300

# Parameters of a model besides a lengthscale for each input.
OTHERS = 3


@dataclass(frozen=True)
class Candidate:
    """A class with settings, and gradients per draw of NUTS; None where importance sampling will do."""

    class_name: str
    settings: dict[str, Any]
    steps: int | None = None
    by_mode: bool = False  # the function is integrated out at its mode, under another likelihood
    by_prior: bool = False  # latent

    @property
    def gradients(self) -> int:
        """Number of gradients that 400 draws take."""
        return WEIGHED if self.steps is None else (DRAWS + TUNE) * self.steps

    @property
    def label(self) -> str:
        """The class with the settings that tell candidates apart."""
        kept = {k: v for k, v in self.settings.items() if v is not None and k != "block"}
        values = [k if v is True else str(v) for k, v in kept.items()]
        values += ["prior"] * (self.by_prior and not self.class_name.endswith("Latent"))
        return f"{self.class_name} {'/'.join(values)}".strip()

    def code(self) -> str:
        """Lines that make it from an array X and a kernel."""
        grid = "grid, order = sgp.RegularGrid.from_points(X)  # y[order]\n"
        line = f"gp = sgp.{self.call('cov_func=cov')}"
        return grid + line if self.class_name == "KMCGMarginal" else line

    def call(self, *first: str) -> str:
        """The class with its arguments, after those whose text is given."""
        texts = [*first, *(f"{name}={value!r}" for name, value in self.settings.items())]
        return f"{self.class_name}({', '.join(texts)})"


def candidates(facts: Facts) -> list[Candidate]:
    """All classes and settings that the data and the kernel allow."""
    found = _marginal(facts)
    if facts.d + OTHERS > MOST_PARAMETERS:
        found = [replace(c, steps=c.steps or STEPS) for c in found]
    if facts.is_normal:
        return found
    # All rows at each mode: not with features of Gaussian targets, learned points or summaries, nor with
    # neighbours alone, by which modes are not found where targets say little; on a grid with its axes'.
    found = [
        replace(c, by_mode=True) for c in found
        if c.class_name[:4] not in ("KMCG", "Soft") and {"rotate", "basis"}.isdisjoint(c.settings)
        and c.settings.get("n_inducing") != 0
    ]  # fmt: skip
    on_grid = facts.grid is not None and facts.suits_grids
    found += [
        Candidate("KMCGMarginal", {"n_iter": r}, by_mode=True)
        for r in CELL_RANKS if on_grid and r < facts.n
    ]  # fmt: skip
    return found * facts.has_modes + _latent(facts)


def _marginal(facts) -> list[Candidate]:
    """With Gaussian noise."""
    many, free = facts.distinct, facts.is_free
    found = [Candidate("StateSpaceMarginal", {})] * bool(facts.states)
    found += [Candidate("ExactMarginal", {})] * (facts.n <= MOST_ROWS)
    near = [(0, 30, 16)] * (facts.d <= NEAR_INPUTS) + [(100, 30, 16), (200, 60, 16)]
    found += [
        Candidate("VecchiaMarginal", {"n_inducing": m, "neighbors": k, "block": g})
        for m, k, g in near if max(m, k) < many
    ]  # fmt: skip
    kinds = [({"rotate": True}, (150, 400, 1000), STEPS_COEFFICIENTS)]
    if free:
        kinds = [({}, (100, 500), None), ({"basis": "frozen"}, (200, 500), None)]
    for options, ranks, steps in kinds:
        for rank in _ranks(facts, ranks):
            found.append(Candidate("GriefGP", {"rank": rank} | options, steps))
    found += [Candidate(f"{name}Marginal", settings) for name, settings in _both(facts)]
    settings = [{"n_iter": p, "probes": s} for p, s in ((20, 4), (50, 8)) if p < facts.n]
    settings = [{}] if facts.has_eigenbasis else settings * bool(facts.grid and facts.suits_grids)
    found += [Candidate("KMCGMarginal", each) for each in settings]
    chosen = [m for m in (50, 150) if facts.is_categorical is not False and m < many]
    options = {} if free else {"approx": "DTC"}
    return found + [
        Candidate("CholQRMarginal", {"n_inducing": m} | options)
        for m in chosen + _as_many_as_distinct(facts)
    ]  # fmt: skip


def _latent(facts) -> list[Candidate]:
    """Under another likelihood, with coefficients or rows as variables."""
    points = [m for m in (50, 200) if m < facts.distinct]
    found = [("VecchiaLatent", {"n_inducing": m, "neighbors": None}) for m in points]
    found += [("GriefGP", {"rank": rank}) for rank in _ranks(facts, (100, 300))]
    found += [(f"{name}Latent", settings) for name, settings in _both(facts)]
    chosen = {"n_inducing": min(50, facts.distinct // 2), "neighbors": 15, "block": 16}
    rows = [Candidate("VecchiaLatent", chosen, STEPS_ROWS, by_prior=True)]
    coefficients = [Candidate(*each, STEPS_COEFFICIENTS, by_prior=True) for each in found]
    return coefficients + rows * (facts.n <= MOST_ROWS)


def _both(facts) -> list[tuple]:
    """SKIP and SoftKI, marginal and latent."""
    skip = facts.suits_grids and facts.d in SKIP_INPUTS
    softki = facts.distinct >= LEAST_SOFTKI_ROWS and facts.d >= LEAST_SOFTKI_INPUTS
    found = [("SKIP", {"rank": r}) for r in (10, 20) if skip and r**2 < facts.distinct]
    points = (256, 512) if softki and facts.is_categorical is False else ()
    return found + [("SoftKI", {"inducing": m}) for m in points]


def _ranks(facts, ranks):
    most = min(facts.distinct, MOST_NODES**facts.d)
    found = [rank for rank in ranks if rank < most] + _as_many_as_distinct(facts)
    return found if facts.suits_grids else []


def _as_many_as_distinct(facts) -> list[int]:
    """Number of features that are exact where few rows are distinct, and at least as many repeat them."""
    return [facts.distinct] * (facts.distinct <= min(MOST_REPEATED, facts.n // 2))
