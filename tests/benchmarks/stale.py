"""Lists stored results that are older than the code which they measure.

python tests/benchmarks/stale.py

A result is old when the code of a file that its name leads to, without docstrings and comments, is another
than at the end of the day on which it was printed, by git's history. Run those again with record.py.
"""

import ast
import subprocess
from datetime import date, timedelta
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
VECCHIA = ["ops/*vecchia*", "ops/*stationary*", "ops/block*", "core/vecchia", "methods/vecchia"]
LOW_RANK = ["ops/lowrank*", "ops/khatri*", "core/likelihoods/lowrank.py", "methods/grief"]
MEASURED = {  # what a name begins with, and the code that costs its time or digits
    "vecchia": VECCHIA,
    "vif": VECCHIA,
    "order": VECCHIA,
    "importance": ["importance", "core/checking/correct.py"],
    "seeds": ["importance"],
    "large": ["importance", *VECCHIA],
    "gpu": ["importance", "core/checking/correct.py", *VECCHIA],
    "shift": ["importance", "core/checking/correct.py"],
    "uci": ["importance", *VECCHIA],
    "evidence": ["importance"],
    "likelihoods": ["core/likelihoods/laplace*", "core/checking/correct.py", "ops/repeat.py", *VECCHIA],
    "series": ["ops/*markov*", "methods/statespace"],
    "structure": ["ops/kronecker*", "methods/kmcg", "cov/groups.py"],
    "table_skip": ["methods/skip", "ops/*hadamard*"],
    "growth_tasks": ["methods/skip", "ops/segment*"],
    "preconditioner": ["methods/skip", "linops"],
    "table_softki": ["methods/softki"],
    "softki": ["methods/softki", "ops/softmax*"],
    "table_kmcg": ["methods/kmcg", "linops"],
    "linops": ["linops"],
    "table_cholqr": ["methods/cholqr"],
    "reconstruction": LOW_RANK,
    "posterior": LOW_RANK,
    "speed": LOW_RANK,
    "type1": LOW_RANK,
    "suggest": ["advice"],
    "peers": [*VECCHIA, *LOW_RANK],
}
ALL = ["ops", "core", "methods", "importance"]


def printed_on(path: Path) -> date:
    """Day of the heading's line `# date: YYYY-MM-DD, ...`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    line = next(each for each in lines if each.startswith("# date: "))
    return date.fromisoformat(line.removeprefix("# date: ").split(",")[0])


def git(*command: str) -> str | None:
    """What git says; None where it fails."""
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout


def without_words(source: str) -> str:
    """The code of a Python file, of which docstrings and comments are no part."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:]
    return ast.dump(tree)


@cache
def is_other_code(commit: str, before: str, name: str) -> bool:
    """Whether a file, which had the name `before` at that commit, has other code now."""
    old = git("show", f"{commit}:{before}")
    return old is None or without_words(old) != without_words((ROOT / name).read_text("utf-8"))


def changed_since(day: date, paths: list[str]) -> list[str]:
    """Files under `paths` whose code is another than at the end of the day."""
    end = (day + timedelta(days=1)).isoformat()
    specs = [f":(glob)pymc_scalable_gp/{each}{'' if '*' in each else '**'}" for each in paths]
    specs += [f":(glob)pymc_scalable_gp/{each}/**" for each in paths if "." not in each]
    commit = git("rev-list", "-1", f"--before={end} 00:00", "HEAD").strip()
    changed = git("diff", "-M", "--diff-filter=d", "--name-status", commit, "--", *specs)
    names = [line.split("\t")[1:] for line in changed.splitlines() if line.endswith(".py")]
    return [now for before, *_, now in ([*each[:1], *each] for each in names)
            if is_other_code(commit, before, now)]  # fmt: skip


def main() -> None:
    """Print a line per result that is old, and the files that changed."""
    for path in sorted((ROOT / "docs" / "benchmarks").glob("*.txt"), key=printed_on):
        names = [name for name in MEASURED if path.stem.startswith(name)]
        changed = changed_since(printed_on(path), MEASURED[max(names, key=len)] if names else ALL)
        if changed:
            short = [name.removeprefix("pymc_scalable_gp/") for name in changed]
            more = f" and {len(short) - 3} more" if len(short) > 3 else ""
            print(f"{path.stem:24} {printed_on(path)}  {', '.join(short[:3])}{more}")


if __name__ == "__main__":
    main()
