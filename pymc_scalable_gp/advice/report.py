"""The table of candidates, and why the first of them is first."""

import textwrap

import numpy as np
import xarray as xr

GIB = 2**30

# Nats a thousand rows from which a posterior of hyperparameters is another one: a tenth of a nat a row.
MUCH = 100.0

# Times the minutes of the budget up to which what is better is worth a word.
REACH = 50.0

_HEAD = ("candidate", "s a gradient", "minutes", "GiB", "loss", "missed", "fits")


class Suggestions(xr.Dataset):
    """Result of :func:`suggest`; printed as a table, a paragraph and a line of code."""

    __slots__ = ()

    def __str__(self):
        text = [self.attrs[name] for name in ("facts", "verdict", "notes")]
        paragraphs = [textwrap.fill(part, 100) for part in text if part]
        return "\n\n".join([_table(self), *paragraphs, self.attrs["code"]])


def _table(found) -> str:
    """Aligned columns, candidates as calls without their kernel."""
    rows = [_HEAD]
    for i in range(found.sizes["candidate"]):
        one = found.isel(candidate=i)
        rows.append(
            (
                str(one.candidate.values), _short(one.seconds_a_gradient), _short(one.minutes),
                _short(one.memory / GIB), _nats(one.loss), _share(one.missed),
                "yes" if one.fits else "no",
            )
        )  # fmt: skip
    widths = [max(len(row[j]) for row in rows) for j in range(len(_HEAD))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


def _short(value) -> str:
    """Two significant digits."""
    value = float(value)
    if not np.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.2g}"


def _nats(value) -> str:
    return "<0.01" if 0.0 < float(value) < 0.01 else _short(value)


def _share(value) -> str:
    return "-" if not np.isfinite(value) else f"{float(value):.1%}"


def verdict(found, n: int, minutes: float, memory: float) -> str:
    """What comes first, why, and what it costs to be closer to the exact GP."""
    first, fits = found.isel(candidate=0), found.fits.values
    name = str(first.candidate.values)
    budget = f"{minutes:g} minutes and {memory / GIB:.3g} GiB"
    if not fits.any():
        over = {
            "minutes": float(first.minutes) / minutes,
            "memory": float(first.memory) / memory,
        }
        misses = " and ".join(f"{f:.3g} times the {what}" for what, f in over.items() if f > 1.0)
        return (
            f"Nothing meets {budget}: the nearest is {name}, which takes {misses}. Its loss is "
            f"{_in_words(first.loss)}"
        )
    text = f"Of what meets {budget} ({fits.sum()} of {len(fits)}), {name} comes first. Its loss is "
    text += _in_words(first.loss)
    enough = 0.5 * float(np.nan_to_num(first.loss, nan=MUCH))
    within = ~fits & (found.minutes.values < REACH * minutes) & (found.loss.values < enough)
    closer = np.flatnonzero(within)
    if closer.size and not float(first.loss) * n < 1000.0:  # less than a nat over all rows
        i = min(closer, key=lambda i: found.minutes.values[i])
        other = found.isel(candidate=i)
        text += (
            f" With {_short(other.minutes)} minutes and {_short(other.memory / GIB)} GiB, "
            f"{other.candidate.values!s} would lose {_nats(other.loss)}."
        )
    return text


def _in_words(loss) -> str:
    loss = float(loss)
    if not np.isfinite(loss):
        return "not known before its points are learned; gp.check tells afterwards."
    if loss > MUCH:
        return (
            f"{_nats(loss)} nats a thousand rows, so much that posteriors of hyperparameters will be off: "
            "look at gp.check before believing them."
        )
    return f"{_nats(loss)} nats a thousand rows."
