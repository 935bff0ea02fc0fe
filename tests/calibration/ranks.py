"""Ranks of true values among posterior draws: kept in files, tested for uniformity, shown as a table."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

DRAWS = 99  # so that a rank is one of 100 values, 10 of them in each bin
BINS = 10
LEVEL = 0.01
ENOUGH = 100  # replications, for ten expected in a bin
BARS = "▁▂▃▄▅▆▇█"


def rank_of(truth, draws) -> int:
    """How many of the draws lie below the truth, 0 to `DRAWS`."""
    return int((np.asarray(draws) < truth).sum())


def histogram(ranks) -> np.ndarray:
    """Ranks by bin (BINS,)."""
    return np.bincount(np.asarray(ranks) * BINS // (DRAWS + 1), minlength=BINS)


def p_value(ranks) -> float:
    """Of the chi-square test that all bins are equally likely."""
    return float(stats.chisquare(histogram(ranks)).pvalue)


@dataclass(frozen=True)
class Store:
    """The finished replications of one case: a CSV file with one line for each."""

    path: Path
    settings: str
    columns: tuple[str, ...]

    def read(self) -> list[dict[str, int]]:
        """Finished replications, in order.

        Raises
        ------
        ValueError
            If they were made with other settings.
        """
        if not self.path.exists():
            return []
        text = self.path.read_text(encoding="utf-8")
        if not text.endswith("\n"):  # the process ended while it wrote
            text = text[: text.rfind("\n") + 1]
            self.path.write_text(text, encoding="utf-8")
        lines = text.splitlines()
        if lines[:2] != self._head()[: len(lines)]:
            raise ValueError(
                f"{self.path} has results of other settings, {lines[0]!r}: delete it, or give --out"
            )
        return [{name: int(x) for name, x in row.items()} for row in csv.DictReader(lines[1:])]

    def _head(self) -> list[str]:
        return [f"# {self.settings}", ",".join(self.columns)]

    def append(self, row: dict[str, int]) -> None:
        """Write one more replication to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        known = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        with self.path.open("a", encoding="utf-8") as file:
            for line in self._head()[known.count("\n") :]:
                file.write(line + "\n")
            file.write(",".join(str(row[name]) for name in self.columns) + "\n")


@dataclass(frozen=True)
class Line:
    """One row of the table: a case and the ranks of its quantities."""

    name: str
    settings: str
    fails: bool  # whether the approximation is known to fail the test
    ranks: dict[str, np.ndarray]
    divergences: int
    min_ess: int

    @classmethod
    def of(cls, name, settings, fails, rows, quantities):
        """From stored replications."""
        ranks = {q: np.array([row[q] for row in rows]) for q in quantities}
        return cls(
            name, settings, fails, ranks,
            sum(row["divergences"] for row in rows), min(row["ess"] for row in rows),
        )  # fmt: skip

    @property
    def replications(self) -> int:
        """Number of data sets."""
        return len(next(iter(self.ranks.values())))

    @property
    def p_values(self) -> dict[str, float]:
        """By quantity."""
        return {name: p_value(ranks) for name, ranks in self.ranks.items()}

    def is_uniform(self, threshold) -> bool:
        """Whether no quantity's p-value is below the threshold."""
        return min(self.p_values.values()) >= threshold


def threshold(lines) -> float:
    """Bonferroni's, over all quantities of all lines."""
    return LEVEL / sum(len(line.ranks) for line in lines)


def table(lines) -> str:
    """Markdown: a row for each case."""
    limit = threshold(lines)
    found = [
        "| class | settings | replications | p-values | worst: ranks 0 to 99, their mean "
        "| divergences, least ESS | uniform |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for line in lines:
        p = line.p_values
        worst = min(p, key=p.get)
        ranks = line.ranks[worst]
        cells = [
            line.name,
            line.settings,
            str(line.replications),
            ", ".join(f"{name} {value:.2g}" for name, value in p.items()),
            f"{worst} {bars(ranks)} {ranks.mean():.0f}",
            f"{line.divergences}, {line.min_ess}",
            verdict(line, limit),
        ]
        found.append("| " + " | ".join(cells) + " |")
    return "\n".join([*found, "", bonferroni(sum(len(line.ranks) for line in lines))])


def bonferroni(tests) -> str:
    """What the last column of the table means, for so many tests."""
    limit = LEVEL / tests
    return f"Uniform: all p-values are at least {limit:.2g}, {LEVEL:g} / {tests} tests (Bonferroni)."


def verdict(line, limit) -> str:
    """Whether the ranks are uniform, and whether it is known that they are not."""
    if line.replications < ENOUGH:
        return "too few yet"
    if line.is_uniform(limit):
        return "yes"
    return "**no** (expected)" if line.fails else "**no**"


def bars(ranks) -> str:
    """The histogram as a line of characters, the fullest bin at full height."""
    counts = histogram(ranks)
    heights = np.ceil(counts / counts.max() * len(BARS)).astype(int)
    return "".join(BARS[max(h - 1, 0)] for h in heights)
