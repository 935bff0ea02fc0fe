"""Which tests are to see a fault in a file: its own, those that import it, and those of its room."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "pymc_scalable_gp"

# Tests elsewhere, by the beginning of a file's path: the first that fits.
ELSEWHERE = {
    "core/checking": ("core/test_errors.py", "core/likelihoods/test_laplace_error.py"),
    "core/vecchia": ("methods/vecchia", "core/test_front_ends.py", "core/checking/test_loo.py"),
    "core/rows": ("core/rows/test_dask_rows.py", "methods/grief/test_frozen.py"),
    "core/data": ("core/test_front_ends.py", "core/test_errors.py", "core/test_gp.py"),
    "core/fit": ("core/test_front_ends.py",),
    "core/likelihoods": (
        "core/test_front_ends.py", "core/test_gp.py", "core/rows/test_statistics.py",
        "core/checking/test_loo.py", "methods/grief/test_gp.py", "methods/test_every_method.py",
    ),
    **dict.fromkeys(("__init__.py", "exported.py"), ("core/test_export.py",)),
    "core/": ("core", "methods/grief/test_gp.py", "methods/test_every_method.py"),
    "cov/": ("methods/test_offsets.py", "methods/vecchia", "methods/grief/test_spec.py"),
    "methods/": ("methods/test_every_method.py", "core/checking/test_loo.py", "core/test_errors.py"),
    "linops/": ("methods/kmcg",),
    "utils/": ("core/test_front_ends.py", "core/test_errors.py"),
}  # fmt: skip
# Compares back-ends, which the copies lack.
WITHOUT = {"core/test_samplers.py"}


def _imported(path: Path) -> set[str]:
    """Files of the package that a module imports, from the package on."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(PACKAGE):
            continue
        base = Path(*node.module.split("."))
        for name in (base.with_suffix(".py"), *((base / a.name).with_suffix(".py") for a in node.names)):
            if (ROOT / name).is_file():
                found.add(str(name.relative_to(PACKAGE)))
    return found


@cache
def _importers(folder: str) -> dict[str, list[str]]:
    """Modules below a folder that import a file of the package, by file."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for name in _imported(path):
            found.setdefault(name, []).append(str(path.relative_to(ROOT / folder)))
    return found


def _near(file: str) -> list[str]:
    """The test beside a file, and those that import it."""
    path = Path(file)
    own = str(path.with_name(f"test_{path.stem.lstrip('_')}.py"))
    importing = [t for t in _importers("tests").get(file, ()) if Path(t).name.startswith("test_")]
    return [own] * (ROOT / "tests" / own).is_file() + importing


def _files(name: str) -> list[str]:
    """A file of tests, or those of a folder."""
    tests = ROOT / "tests"
    found = sorted((tests / name).rglob("test_*.py")) if (tests / name).is_dir() else [tests / name]
    return [str(path.relative_to(tests)) for path in found]


@cache
def watchers(file: str) -> tuple[str, ...]:
    """Files of tests, from tests/ on, the nearest first."""
    room, found = str(Path(file).parent), _near(file)
    if room == "ops":  # one room of many Ops: those made of this file, not all
        users = [user for user in _importers(PACKAGE).get(file, ()) if user != "ops/__init__.py"]
        found += [test for user in users for test in _near(user)]
    elif (ROOT / "tests" / room).is_dir() and room not in (".", "core"):
        found.append(room)
    found += next((tests for start, tests in ELSEWHERE.items() if file.startswith(start)), ())
    files = dict.fromkeys(test for name in found for test in _files(name))
    return tuple(test for test in files if test not in WITHOUT)
