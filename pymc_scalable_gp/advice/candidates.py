"""Classes and settings that come into question for the data and the kernel."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pymc_scalable_gp.advice.facts import Facts
from pymc_scalable_gp.importance.density import MOST_PARAMETERS

# Classes that lose nothing, at whatever hyperparameters.
EXACT = ("ExactMarginal", "StateSpaceMarginal")

# With more rows than these, a dense exact GP and a latent variable for each row are not listed.
MOST_EXACT = 20_000
MOST_LATENT_ROWS = 20_000

# Fewer rows than these cannot train SoftKI's points, and in fewer inputs its weights are too wide.
LEAST_TO_TRAIN = 5000
LEAST_SOFTKI_INPUTS = 4

# Numbers of inputs for which SKIP is listed, and up to which neighbours without inducing points are.
SKIP_INPUTS = (2, 6)
NEAR_INPUTS = 3

# Nodes of a column in GriefGP's finest grids, and so its rank in one input.
MOST_NODES = 200

# Gradients per draw of NUTS: for more parameters than importance sampling takes, for a few hundred
# coefficients, and for a variable for each row. Draws of a chain, and draws that tune the sampler before.
STEPS, STEPS_COEFFICIENTS, STEPS_ROWS = 15, 31, 127
DRAWS, TUNE = 1000, 1000

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
    treatment: str = "FITC"  # of the variance that features miss, as in `pm.gp.MarginalApprox`
    by_mode: bool = False  # the function is integrated out at its mode, under another likelihood

    @property
    def gradients(self) -> int:
        """Number of gradients that a posterior takes."""
        return WEIGHED if self.steps is None else (DRAWS + TUNE) * self.steps

    def code(self) -> str:
        """Lines that make it from an array X and a kernel."""
        line = f"gp = sgp.{self._call({'cov_func': 'cov'})}"
        if self.class_name == "KMCGMarginal":
            line = f"grid, order = sgp.RegularGrid.from_points(X)  # y[order]\n{line}"
        return line

    def __str__(self):
        return self._call({})

    def _call(self, first: dict[str, str]) -> str:
        """The class with its arguments, after those whose text is given."""
        texts = first | {name: repr(value) for name, value in self.settings.items()}
        return f"{self.class_name}({', '.join(f'{name}={text}' for name, text in texts.items())})"


def candidates(facts: Facts) -> list[Candidate]:
    """All classes and settings that the data and the kernel allow."""
    found = list(_marginal(facts)) if facts.is_normal or facts.has_modes else []
    if not facts.is_normal:
        # All rows at each mode: not with features of Gaussian targets, learned points or summaries.
        found = [
            replace(c, by_mode=True)
            for c in found
            if c.class_name not in ("KMCGMarginal", "SoftKIMarginal")
            and {"rotate", "basis"}.isdisjoint(c.settings)
        ]
    if facts.d + OTHERS > MOST_PARAMETERS:
        found = [replace(c, steps=c.steps or STEPS) for c in found]
    return found if facts.is_normal else [*found, *_latent(facts)]


def _marginal(facts) -> Iterator[Candidate]:
    """With Gaussian noise."""
    if facts.states:
        yield Candidate("StateSpaceMarginal", {})
    if facts.n <= MOST_EXACT:
        yield Candidate("ExactMarginal", {})
    settings = [(0, 30, 16)] if facts.d <= NEAR_INPUTS else []
    for m, k, g in [*settings, (100, 30, 16), (200, 60, 16)]:
        if max(m, k) < facts.distinct:
            yield Candidate("VecchiaMarginal", {"n_inducing": m, "neighbors": k, "block": g})
    kinds = [({"rotate": True}, (150, 400, 1000))]
    if facts.is_free:
        kinds = [({}, (100, 500)), ({"basis": "frozen"}, (200, 500))]
    for options, ranks in kinds:
        for rank in _grief_ranks(facts, ranks):
            steps = None if facts.is_free else STEPS_COEFFICIENTS
            treatment = "DTC" if options else "FITC"
            yield Candidate("GriefGP", {"rank": rank, **options}, steps, treatment)
    for rank in _skip_ranks(facts):
        yield Candidate("SKIPMarginal", {"rank": rank})
    for m in _softki_points(facts):
        yield Candidate("SoftKIMarginal", {"inducing": m})
    if facts.has_eigenbasis:
        yield Candidate("KMCGMarginal", {})
    by_steps = facts.grid and facts.suits_grids and not facts.has_eigenbasis
    for steps, probes in ((20, 4), (50, 8)) if by_steps else ():
        if steps < facts.n:
            yield Candidate("KMCGMarginal", {"n_iter": steps, "probes": probes})
    for m in (50, 150) if facts.is_categorical is not False else ():
        if m < facts.distinct:
            options = {} if facts.is_free else {"approx": "DTC"}
            treatment = options.get("approx", "VFE")
            yield Candidate("CholQRMarginal", {"n_inducing": m, **options}, treatment=treatment)


def _latent(facts) -> Iterator[Candidate]:
    """Under another likelihood, with coefficients or rows as variables."""
    common = {"steps": STEPS_COEFFICIENTS, "treatment": "DTC"}
    for m in (50, 200):
        if m < facts.distinct:
            yield Candidate("VecchiaLatent", {"n_inducing": m, "neighbors": None}, **common)
    if facts.n <= MOST_LATENT_ROWS:
        chosen = {"n_inducing": min(50, facts.distinct // 2), "neighbors": 15, "block": 16}
        yield Candidate("VecchiaLatent", chosen, STEPS_ROWS)
    for rank in _grief_ranks(facts, (100, 300)):
        yield Candidate("GriefGP", {"rank": rank}, **common)
    for rank in _skip_ranks(facts):
        yield Candidate("SKIPLatent", {"rank": rank}, **common)
    for m in _softki_points(facts):
        yield Candidate("SoftKILatent", {"inducing": m}, **common)


def _grief_ranks(facts, ranks):
    most = min(facts.distinct, MOST_NODES**facts.d)
    return [rank for rank in ranks if facts.suits_grids and rank < most]


def _skip_ranks(facts):
    suits = facts.suits_grids and SKIP_INPUTS[0] <= facts.d <= SKIP_INPUTS[1]
    return [rank for rank in (10, 20) if suits and rank**2 < facts.distinct]


def _softki_points(facts):
    enough = facts.distinct >= LEAST_TO_TRAIN and facts.d >= LEAST_SOFTKI_INPUTS
    return (256, 512) if enough and facts.is_categorical is False else ()
