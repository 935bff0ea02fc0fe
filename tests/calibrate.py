"""Simulation-based calibration (Talts et al., 2018) of every class, on data from the exact GP.

Parameters are drawn from their priors, a function and data from the exact kernel at these parameters,
and the parameters and the function at new points are ranked among posterior draws of the approximate
model. If that model is right the ranks are uniform, whatever the data. What it gets wrong shows in
their histogram: ranks near zero say that the posterior lies above the truth.

Finished replications are kept in --out, and a new call goes on from there.
"""

import argparse
import zlib
from pathlib import Path

import numpy as np
from calibration.cases import CASES
from calibration.ranks import Line, Store, bonferroni, table, threshold, verdict
from calibration.sampling import sampler_of
from pymc.progress_bar import create_simple_progress

PAGE = Path(__file__).parents[1] / "docs" / "calibration.md"
BEGIN = "<!-- table: made by `tests/calibrate.py --table --docs` -->\n"
END = "<!-- end of table -->\n"


def quantities(case) -> list[str]:
    """Columns of ranks."""
    return [*case.quantities, *(f"f[{j}]" for j in range(len(case.problem.Xnew)))]


def store_of(case, folder) -> Store:
    """Where a case's replications are kept."""
    name = "".join(c if c.isalnum() else "_" for c in case.name)
    columns = ("replication", *quantities(case), "ess", "divergences")
    return Store(folder / f"{name}.csv", case.describe(), columns)


def run(case, store, replications, progressbar=True, fitted=None) -> None:
    """Make the replications that are missing: each has a seed of its own."""
    done = {row["replication"] for row in store.read()}
    missing = [k for k in range(replications) if k not in done]
    fitted = fitted or sampler_of(case)
    progress = create_simple_progress(progressbar=progressbar)
    with progress:
        task = progress.add_task(case.name, completed=replications - len(missing), total=replications)
        for k in missing:
            rng = np.random.default_rng([zlib.crc32(case.name.encode()), k])
            truth = case.problem.truth(rng)
            f, y = case.problem.simulate(truth, rng)
            store.append({"replication": k} | fitted.replicate(truth, f, y, rng))
            progress.advance(task)


def report(cases, folder) -> list[Line]:
    """Rows of the table, of the cases that have any replications."""
    found = []
    for case in cases:
        rows = store_of(case, folder).read()
        if rows:
            found.append(Line.of(case.name, case.settings, case.fails, rows, quantities(case)))
    return found


def write_page(text) -> None:
    """Put the table into the page of the docs; rows without results here stay as they were."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    kept, after = rest.split(END)
    PAGE.write_text(before + BEGIN + merged(kept, text) + "\n" + END + after, encoding="utf-8")


def merged(old, new) -> str:
    """A table with the rows of two, those of `new` first, in the order of the cases."""
    rows = {}
    for line in [*old.splitlines(), *new.splitlines()]:
        name = line.removeprefix("| ").split(" | ")[0]
        if name in CASES:
            rows[name] = line
    head = new.splitlines()[:2]
    tests = sum(len(row.split(" | ")[3].split(", ")) for row in rows.values())
    ordered = [rows[name] for name in CASES if name in rows]
    return "\n".join([*head, *ordered, "", bonferroni(tests)])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--classes", nargs="+", metavar="NAME", default=list(CASES), choices=list(CASES),
        help=f"rows of the table: {'; '.join(CASES)}",
    )  # fmt: skip
    parser.add_argument("--replications", type=int, default=200, help="data sets (default: 200)")
    parser.add_argument("--out", type=Path, default=Path(".calibration"), help="folder of results")
    parser.add_argument("--progressbar", choices=("on", "off"), default="on")
    parser.add_argument("--table", action="store_true", help="print what there is, and run nothing")
    parser.add_argument("--docs", action="store_true", help="write the table into the docs, too")
    options = parser.parse_args()
    if not options.table:
        for name in options.classes:
            store = store_of(CASES[name], options.out)
            run(CASES[name], store, options.replications, options.progressbar == "on")
    lines = report(CASES.values(), options.out)
    print(table(lines) if lines else f"no results in {options.out}")
    if lines and options.docs:
        write_page(table(lines))
    if any(verdict(line, threshold(lines)) == "**no**" for line in lines):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
