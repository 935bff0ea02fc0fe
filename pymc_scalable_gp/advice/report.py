"""The table of candidates, and why the first of them is first."""

import textwrap

import numpy as np
import pandas as pd
import xarray as xr

from pymc_scalable_gp.advice.candidates import Candidate
from pymc_scalable_gp.advice.facts import Facts
from pymc_scalable_gp.advice.loss import Sample

GIB = 2**30

# Nats per thousand rows from which a posterior of hyperparameters is another one: a tenth of a nat per row.
MUCH = 100.0

# A better candidate is mentioned if it takes up to this multiple of the budget's minutes.
REACH = 50.0


class Suggestions(xr.Dataset):
    """Result of :func:`suggest`; printed as a table, a paragraph and a line of code."""

    __slots__ = ()

    def __str__(self):
        text = [self.attrs[name] for name in ("facts", "verdict", "notes")]
        paragraphs = [textwrap.fill(part, 100) for part in text if part]
        return "\n\n".join([_table(self), *paragraphs, self.attrs["code"]])


def _table(found) -> str:
    """Aligned columns, candidates as calls without their kernel."""
    columns = {
        "s per gradient": map(_short, found.seconds_a_gradient.values),
        "minutes": map(_short, found.minutes.values),
        "GiB": map(_short, found.memory.values / GIB),
        "loss": map(_nats, found.loss.values),
        "missed": ("-" if np.isnan(value) else f"{value:.1%}" for value in found.missed.values),
        "fits": ("yes" if value else "no" for value in found.fits.values),
    }
    cells = pd.DataFrame(
        {k: list(v) for k, v in columns.items()}, index=found.candidate.values, dtype=str
    )
    return cells.rename_axis(columns="candidate").to_string()


def _short(value) -> str:
    """Two significant digits."""
    if not np.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.2g}"


def _nats(value) -> str:
    return "<0.01" if 0.0 < value < 0.01 else _short(value)


def verdict(rows: list[dict], n: int, minutes: float, memory: float) -> str:
    """Name the first candidate, its loss, and the cost of one that is closer to the exact GP."""
    first, fitting = rows[0], sum(row["fits"] for row in rows)
    budget, loss = f"{minutes:g} minutes and {memory / GIB:.3g} GiB", _in_words(first["loss"])
    if not fitting:
        over = {"minutes": first["minutes"] / minutes, "memory": first["memory"] / memory}
        misses = " and ".join(f"{f:.3g} times the {what}" for what, f in over.items() if f > 1.0)
        return (
            f"Nothing meets {budget}: the nearest is {first['candidate']}, which takes {misses}. Its "
            f"loss is {loss}"
        )
    text = f"Of what meets {budget} ({fitting} of {len(rows)}), {first['candidate']} comes first. "
    text += f"Its loss is {loss}"
    if first["loss"] * n < 1000.0:  # less than a nat over all rows
        return text
    enough = 0.5 * (MUCH if np.isnan(first["loss"]) else first["loss"])
    closer = [
        row for row in rows
        if not row["fits"] and row["minutes"] < REACH * minutes and row["loss"] < enough
    ]  # fmt: skip
    if closer:
        best = min(closer, key=lambda row: row["minutes"])
        text += (
            f" With {_short(best['minutes'])} minutes and {_short(best['memory'] / GIB)} GiB, "
            f"{best['candidate']} would lose {_nats(best['loss'])}."
        )
    return text


def _in_words(loss) -> str:
    if np.isnan(loss):
        return "not known before its points are learned; gp.check tells afterwards."
    text = f"{_nats(loss)} nats per thousand rows"
    if loss > MUCH:
        text += (
            ", so much that posteriors of hyperparameters will be off: look at gp.check before "
            "believing them"
        )
    return f"{text}."


def notes_on(facts: Facts, sample: Sample, first: Candidate) -> list[str]:
    """Conditions of the losses, and advice on the first candidate and on repeated rows."""
    share, where = sample.noise / float(np.diag(sample.K).mean()), "the kernel's hyperparameters"
    if sample.model is not None and facts.is_free:
        where = "the hyperparameters given" if sample.point else "the initial point of the model"
    found = [
        f"Losses are those on {len(sample.X)} rows with a noise variance of {share:.2g} of the prior "
        f"variance, at {where}."
    ]
    if first.settings.get("basis") == "frozen":
        found.append("A frozen basis loses that with reference= there; gp.check has it elsewhere.")
    if first.class_name.startswith("SoftKI"):
        found.append("Its points have to be learned: sgp.fit_inducing.")
    if facts.distinct < facts.n:
        found.append(
            f"{facts.n - facts.distinct} rows repeat the inputs of others: under one sigma the mean of "
            "their targets, with sigma over the root of their number, is as good and costs less."
        )
    return found
