"""Classes and settings that come into question for the data and the kernel."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pymc_scalable_gp.advice import costs
from pymc_scalable_gp.advice.costs import Cost
from pymc_scalable_gp.advice.facts import Facts

# More rows than these, and the class is not worth a line.
MOST_EXACT = 20_000
MOST_LATENT_ROWS = 20_000

# Fewer rows than these cannot train SoftKI's points, and in fewer inputs its weights are too wide.
LEAST_TO_TRAIN = 5000
LEAST_SOFTKI_INPUTS = 4

# Inputs that SKIP's trees are for, and those in which neighbours alone are near.
SKIP_INPUTS = (2, 6)
NEAR_INPUTS = 3

# Nodes of a column in GriefGP's finest grids, and so its rank in one input.
MOST_NODES = 200

# Gradients a draw: few free parameters; a few hundred coefficients; a variable a row.
STEPS, STEPS_COEFFICIENTS, STEPS_ROWS = 15, 31, 127


@dataclass(frozen=True)
class Candidate:
    """A class with settings, what a gradient costs, and gradients a draw."""

    class_name: str
    settings: dict[str, Any]
    cost: Cost
    steps: int = STEPS
    treatment: str = "FITC"  # of the variance that features miss, as in `pm.gp.MarginalApprox`

    def code(self, cov: str = "cov") -> str:
        """The call that makes it."""
        inside = [f"cov_func={cov}", *(f"{name}={v!r}" for name, v in self.settings.items())]
        return f"sgp.{self.class_name}({', '.join(inside)})"

    def __str__(self):
        inside = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"{self.class_name}({inside})"


def candidates(facts: Facts) -> list[Candidate]:
    """All that the data and the kernel allow."""
    kinds = (_exact, _vecchia, _grief, _skip, _softki, _kmcg, _cholqr)
    if not facts.is_normal:
        kinds = (_latent_vecchia, _latent_grief, _latent_skip, _latent_softki)
    return [candidate for kind in kinds for candidate in kind(facts)]


def _is_continuous(facts) -> bool:
    return facts.is_categorical is False


def _can_train(facts) -> bool:
    enough = facts.distinct >= LEAST_TO_TRAIN and facts.d >= LEAST_SOFTKI_INPUTS
    return enough and _is_continuous(facts)


def _exact(facts) -> Iterator[Candidate]:
    if facts.n <= MOST_EXACT:
        yield Candidate("ExactMarginal", {}, costs.exact(facts.n))


def _vecchia(facts) -> Iterator[Candidate]:
    settings = [(0, 30, 16)] if facts.d <= NEAR_INPUTS else []
    for m, k, g in [*settings, (100, 30, 16), (200, 60, 16)]:
        if max(m, k) < facts.distinct:
            chosen = {"n_inducing": m, "neighbors": k, "block": g}
            yield Candidate("VecchiaMarginal", chosen, costs.vecchia(facts.n, m, k, g))


def _grief(facts) -> Iterator[Candidate]:
    if not (facts.is_product and _is_continuous(facts)):
        return
    n, d = facts.n, facts.d
    kinds = [({"rotate": True}, (150, 400, 1000), costs.grief_rotated)]
    if facts.is_free:
        kinds = [({}, (100, 500), costs.grief)]
        kinds += [({"basis": "frozen"}, (200, 500), costs.grief_frozen)]
    for options, ranks, cost in kinds:
        for r in ranks:
            if r < min(facts.distinct, MOST_NODES**d):
                steps = STEPS if facts.is_free else STEPS_COEFFICIENTS
                treatment = "DTC" if options else "FITC"
                chosen = {"rank": r, **options}
                yield Candidate("GriefGP", chosen, cost(n, d, r), steps, treatment)


def _skip(facts) -> Iterator[Candidate]:
    low, high = SKIP_INPUTS
    if facts.is_product and _is_continuous(facts) and low <= facts.d <= high:
        for r in (10, 20):
            if r**2 < facts.distinct:
                yield Candidate("SKIPMarginal", {"rank": r}, costs.skip(facts.n, facts.d, r))


def _softki(facts) -> Iterator[Candidate]:
    if _can_train(facts):
        for m in (256, 512):
            yield Candidate("SoftKIMarginal", {"inducing": m}, costs.softki(facts.n, m))


def _kmcg(facts) -> Iterator[Candidate]:
    if facts.has_grid:
        for steps, probes in ((20, 4), (50, 8)):
            if steps < facts.n:
                chosen = {"n_iter": steps, "probes": probes}
                yield Candidate("KMCGMarginal", chosen, costs.kmcg(facts, steps, probes))


def _cholqr(facts) -> Iterator[Candidate]:
    if _is_continuous(facts):
        return
    for m in (50, 150):
        if m < facts.distinct and facts.is_free:
            chosen, cost = {"n_inducing": m}, costs.cholqr(facts.n, m)
            yield Candidate("CholQRMarginal", chosen, cost, treatment="VFE")
        elif m < facts.distinct:
            chosen = {"n_inducing": m, "approx": "DTC"}
            cost = costs.cholqr_fixed(facts.n, m)
            yield Candidate("CholQRMarginal", chosen, cost, treatment="DTC")


def _latent_vecchia(facts) -> Iterator[Candidate]:
    for m in (50, 200):
        if m < facts.distinct:
            chosen = {"n_inducing": m, "neighbors": None}
            cost = costs.latent_inducing(facts.n, m)
            yield Candidate("VecchiaLatent", chosen, cost, STEPS_COEFFICIENTS, "DTC")
    if facts.n <= MOST_LATENT_ROWS:
        m = min(50, facts.distinct // 2)
        chosen = {"n_inducing": m, "neighbors": 15, "block": 16}
        cost = costs.vecchia(facts.n, m, 15, 16)
        yield Candidate("VecchiaLatent", chosen, cost, STEPS_ROWS)


def _latent_grief(facts) -> Iterator[Candidate]:
    if facts.is_product and _is_continuous(facts):
        for r in (100, 300):
            if r < min(facts.distinct, MOST_NODES**facts.d):
                cost = costs.latent_features(facts.n, facts.d, r, facts.is_free)
                yield Candidate("GriefGP", {"rank": r}, cost, STEPS_COEFFICIENTS, "DTC")


def _latent_skip(facts) -> Iterator[Candidate]:
    low, high = SKIP_INPUTS
    if facts.is_product and _is_continuous(facts) and low <= facts.d <= high:
        for r in (10, 20):
            if r**2 < facts.distinct:
                cost = costs.latent_skip(facts.n, facts.d, r, facts.is_free)
                yield Candidate("SKIPLatent", {"rank": r}, cost, STEPS_COEFFICIENTS, "DTC")


def _latent_softki(facts) -> Iterator[Candidate]:
    if _can_train(facts):
        for m in (256, 512):
            cost = costs.latent_softki(facts.n, m)
            yield Candidate("SoftKILatent", {"inducing": m}, cost, STEPS_COEFFICIENTS, "DTC")
