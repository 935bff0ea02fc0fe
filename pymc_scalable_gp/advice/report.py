"""The table of candidates, and why the first of them is first."""

import textwrap

import numpy as np
import xarray as xr

from pymc_scalable_gp.advice.candidates import EXACT, Candidate
from pymc_scalable_gp.advice.facts import Facts
from pymc_scalable_gp.advice.loss import Sample
from pymc_scalable_gp.core.checking.verdict import FASTER_EXACT

GIB, WIDTH = 2**30, 80

# Nats per thousand rows from which the posterior of the hyperparameters is another one: 0.1 per row.
# A loss that is not known, or at one point alone, counts as so much: it is neither good nor bad.
MUCH = 100.0


class Suggestions(xr.Dataset):
    """Result of :func:`suggest`; printed as a table, paragraphs and a line of code."""

    __slots__ = ()

    def __str__(self):
        names = ("label", "fits", "minutes", "ranked", "why")
        label, fits, minutes, ranked, why = (self[name].values for name in names)
        columns = label, np.where(fits, "yes", "no"), map(short, minutes), map(short, ranked), why
        cells = [("class", "fits", "minutes", "loss", "why"), *zip(*columns, strict=True)]
        lines = [f"{a:<24} {b:>4} {c:>8} {d:>6}  {e}" for a, b, c, d, e in cells]
        text = [textwrap.fill(self.attrs[key], WIDTH) for key in ("facts", "verdict", "notes")]
        return "\n\n".join(["\n".join(lines), *text, self.attrs["code"]])


def short(value) -> str:
    """Two significant digits."""
    if not np.isfinite(value):
        return "-"
    if value != 0.0 and abs(value) < 0.01:  # a difference that is rounding may be negative
        return "<0.01"
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.2g}"


def rank(row: dict, n: int, minutes: float, memory: float) -> dict:
    """The row with ``fits``, the loss that ranks it, why that is its place, and its place in order."""
    over = {"minutes": row["minutes"] / minutes, "memory": row["memory"] / memory}
    most, loss, why = max(over, key=over.get), row["loss"], "not all rows are neighbours"
    name, fits = row["class_name"], over[most] <= 1.0
    exact = name in EXACT or (loss == 0.0 and not row["settings"])  # at other hyperparameters too
    if exact:
        why = "exact"
    elif np.isnan(loss):
        loss, why = MUCH, "not known: gp.check tells"
    elif row["settings"].get("basis") == "frozen":  # more elsewhere
        loss, why = max(loss, MUCH), f"{short(loss)} at its reference alone"
    elif loss * n < 1000.0:  # below 1 nat over all rows: the posterior is the same
        loss, why = 0.0, "below 1 nat on all rows"
    elif name == "KMCGMarginal":
        why = "steps and probes are few"
    elif row["missed"] > 0.0:
        why = f"{short(100.0 * row['missed'])}% of variance unexplained"
    place = (0, loss, not exact, row["minutes"])
    if not fits:
        loss, why = row["loss"], f"{over[most]:.3g} times the {most}"
        place = (1, over[most], 0, row["minutes"])
    return row | {"fits": fits, "ranked": loss, "why": why, "place": place}


def verdict(rows: list[dict], minutes: float, memory: float) -> str:
    """Name the first candidate, and its loss or what it takes beyond the budget."""
    first, fitting = rows[0], sum(row["fits"] for row in rows)
    budget, loss = f"{minutes:g} minutes and {memory / GIB:.3g} GiB", first["loss"]
    text = f"Of what meets {budget} ({fitting} of {len(rows)}), {first['candidate']} comes first."
    if not fitting:
        text = f"Nothing meets {budget}: the nearest is {first['candidate']}, with {first['why']}."
    nats = "not known" if np.isnan(loss) else f"{short(loss)} nats per thousand rows"
    much = ", so much that posteriors of hyperparameters are off: look at gp.check first"
    return f"{text} Its loss is {nats}{much if loss > MUCH else ''}."


def notes_on(facts: Facts, sample: Sample, first: Candidate) -> list[str]:
    """Conditions of the losses, and advice on the first candidate, on few and on repeated rows."""
    share, where = sample.noise / float(np.diag(sample.K).mean()), "the kernel's hyperparameters"
    if sample.model is not None and facts.is_free:
        where = "the hyperparameters given" if sample.point else "the initial point of the model"
    found = [
        "Minutes are those of 400 draws. Losses, in nats per thousand rows, are those on "
        f"{len(sample.X)} rows with a noise variance of {share:.2g} of the prior variance, at {where}."
    ]
    few = f"Below {FASTER_EXACT} rows the classes with neighbours are slower than the exact ones."
    found += [few] * (facts.n < FASTER_EXACT)
    if first.settings.get("basis") == "frozen":
        found.append("The loss of a frozen basis is that at its reference= alone: see gp.check.")
    if first.class_name.startswith("SoftKI"):
        found.append("Its points have to be learned: sgp.fit_inducing.")
    if facts.distinct < facts.n and facts.is_normal:
        more = facts.n - facts.distinct
        found.append(
            f"{more} rows repeat the inputs of others: means of their targets, each with sigma over the "
            "root of their number, cost less. They are as good for a fixed sigma; a free one learns from S "
            f"too, the sum of squares about these means: pm.Potential('spread', -{more} * "
            "pm.math.log(sigma) - S / (2 * sigma**2))."
        )
    return found
