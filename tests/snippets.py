"""Runs the Python code of a page from top to bottom in one process, as a reader would paste it.

python tests/snippets.py PAGE.md

Sampling is cut to a few draws. A block that starts with a line `# not run` is left out, and so are blocks
of other kinds (text, shell). Cells of a tutorial run with its blocks, which go on from them.
"""

import re
import sys
import warnings
from functools import wraps
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import pymc as pm

import pymc_scalable_gp as sgp

FEW = {"draws": 30, "tune": 10, "chains": 1, "cores": 1, "progressbar": False}
FEW["nuts"] = {"max_treedepth": 3}
LEFT_OUT = "# not run"
BLOCK, CELL = "python", r"\{code-cell\} python"


def blocks(page: Path, kind: str = BLOCK) -> list[tuple[int, str]]:
    """Line number and text of each block; options of a cell are blank lines."""
    text = re.sub(r"^:[\w-]+:.*$", "", page.read_text(encoding="utf-8"), flags=re.M)
    found = re.finditer(rf"^( *)```(?:{kind})\n(.*?)^ *```$", text, re.S | re.M)
    return [
        (text.count("\n", 0, match.start(2)) + 1, re.sub(f"^{match[1]}", "", match[2], flags=re.M))
        for match in found
    ]


def shortened(function, options):
    """The function with other options, those of nested dictionaries added."""

    @wraps(function)
    def call(*args, **kwargs):
        nested = {k: kwargs.get(k, {}) | v for k, v in options.items() if isinstance(v, dict)}
        return function(**(kwargs | options | nested))  # what is given by place is replaced

    return call


def run(page: Path) -> None:
    """All blocks in one namespace; errors carry the page's line."""
    warnings.simplefilter("ignore")
    few = FEW | {"draws": 500} if blocks(page, CELL) else FEW  # tutorials predict with hundreds
    pm.sample = shortened(pm.sample, few)
    if not blocks(page, CELL):  # of which tutorials predict with hundreds
        options = {"draws": 100, "progressbar": False}
        sgp.sample_importance = shortened(sgp.sample_importance, options)
    pm.find_MAP = shortened(pm.find_MAP, {"maxeval": 3, "progressbar": False})
    names = {"__name__": "__main__"}
    for line, text in blocks(page, f"{BLOCK}|{CELL}"):
        if not text.startswith(LEFT_OUT):
            exec(compile("\n" * (line - 1) + text, page.name, "exec"), names)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
