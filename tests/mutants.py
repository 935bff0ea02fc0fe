"""Faults put into the package on purpose, one at a time, each of which some test must see.

``python tests/mutants.py`` applies each fault to a copy of the tree, runs the tests that should
fail, and reports which did: the score is the share that was killed, below 90% is a failure. A
survivor says that a line can be wrong unseen: it needs a test, or a rule that leaves it out.

Faults are made by rule (`mutation/rules.py`): a sample of the comparisons, numbers, defaults, seeds,
guards, signs and extremes of each file, which is the same for the same ``--seed`` and which the tests of
the file (`mutation/cover.py`) are to see. A few that no rule makes stand in `mutation/by_hand.py`.

The copies run on Python alone (no JAX, and Numba only where a test insists), which the tests of the
back-ends compare with. Processes are forked from one that has imported PyMC already, which
takes longer than most of these tests.
"""

import argparse
import compileall
import importlib
import os
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import NamedTuple

from mutation.by_hand import BY_HAND
from mutation.cover import PACKAGE, ROOT, watchers
from mutation.rules import Fault, faults

ENOUGH = 0.9  # share of the mutants that must be killed
COUNT = 150  # by rule
SECONDS = 300  # of the processor that the tests of one mutant may take; a loop without end counts as seen
FAILED, INTERRUPTED = (1, 2)  # pytest's exit codes when a test failed, and when one cannot be imported
# In the copy only: Python is what the other back-ends are compared with.
CONFTEST = f"""
from {PACKAGE} import testing

check = testing.check_op
testing.check_op = lambda *args, **options: check(*args, **(options | {{"modes": ()}}))


def pytest_collection_modifyitems(items):
    items[:] = [
        item for item in items
        if not hasattr(item, "callspec") or item.callspec.params.get("mode") not in ("NUMBA", "JAX")
    ]
"""


class Mutant(NamedTuple):
    """A fault, and the tests, named from tests/ on, that are to see it."""

    fault: Fault
    tests: str


def _sources(root=ROOT) -> Iterator[tuple[str, bytes]]:
    for path in sorted((root / PACKAGE).rglob("*.py")):
        yield str(path.relative_to(root / PACKAGE)), path.read_bytes()


def by_hand() -> list[Mutant]:
    """Those of the list; the old text must stand exactly once in its file."""
    found = []
    for file, old, new, tests in BY_HAND:
        source = (ROOT / PACKAGE / file).read_bytes()
        if (count := source.count(old.encode())) != 1:
            raise ValueError(f"{file} holds {count} times, not once:\n{old}")
        start = source.index(old.encode())
        line = source[:start].count(b"\n") + 1
        fault = Fault(file, line, "by hand", start, start + len(old.encode()), new.encode())
        found.append(Mutant(fault, tests))
    return found


def by_rule() -> list[Mutant]:
    """All that the rules make, file by file."""
    found = [fault for file, source in _sources() for fault in faults(file, source)]
    return [Mutant(fault, " ".join(watchers(fault.file))) for fault in found]


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many: of each file in proportion to the root of their number, of its rules in turn."""
    files: dict[str, dict[str, list[Mutant]]] = {}
    for mutant in mutants:
        rules = files.setdefault(mutant.fault.file, {})
        rules.setdefault(mutant.fault.rule, []).append(mutant)
    ranked = []
    for file, rules in files.items():
        rng = Random(f"{seed} {file}")
        groups = [rng.sample(group, len(group)) for group in rng.sample([*rules.values()], len(rules))]
        turns = [mutant for turn in zip_longest(*groups) for mutant in turn if mutant]
        begin, share = rng.random(), len(turns) ** 0.5
        ranked += [((place + begin) / share, mutant) for place, mutant in enumerate(turns)]
    chosen = [mutant for _, mutant in sorted(ranked, key=lambda pair: pair[0])[:count]]
    return sorted(chosen, key=lambda mutant: mutant.fault)


def mutated(mutant: Mutant, root=ROOT) -> bytes:
    """Source with the fault."""
    fault = mutant.fault
    source = (root / PACKAGE / fault.file).read_bytes()
    return source[: fault.start] + fault.new + source[fault.end :]


def copy_tree(folder: Path) -> None:
    """Package and tests, compiled to bytecode, with what makes them run on Python alone."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in (PACKAGE, "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    compileall.compile_dir(str(folder / PACKAGE), quiet=1)


class WithoutJax:
    """A finder of modules that has no JAX. (None in `sys.modules` SciPy would take for the module.)"""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        """Nothing for the one name."""
        jax = name.partition(".")[0] == "jax"
        return None if jax else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


def prepare(folder: Path) -> None:
    """Import what is no part of the package, once for all processes; compiled code goes into `folder`."""
    os.environ["PYTENSOR_FLAGS"] = f"mode=FAST_COMPILE,base_compiledir={folder / 'compiled'}"
    sys.dont_write_bytecode = True  # a fault of the same length and second would run the old code
    sys.meta_path[:] = map(WithoutJax, sys.meta_path)
    for name in ("pymc", "pytest", "sklearn.cluster", "arviz", "rich", "better_optimize"):
        importlib.import_module(name)


def run(folder: Path, tests: str, log: Path) -> int | None:
    """Exit code of pytest in a process of its own; None when it took too long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # idle threads of libraries: no locks
        child = os.fork()
    if child == 0:
        code = 3
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1), os.dup2(output, 2)
            os.chdir(folder)
            sys.path[:] = [str(folder), *(p for p in sys.path if Path(p).resolve() != ROOT)]
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            options = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder)]
            if "-k" not in tests:  # a test that is named may be slow
                options += ["-m", "not slow"]
            named = [f"tests/{t}" if ".py" in t else t for t in shlex.split(tests)]
            code = int(importlib.import_module("pytest").main([*options, *named]))
        finally:
            os._exit(code)
    end = time.monotonic() + 10 * SECONDS  # of the clock: other programs run too
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def kill(mutant: Mutant, folder: Path, log: Path) -> str:
    """What became of the mutant: killed, SURVIVED, or ERROR where its tests did not run."""
    path = folder / PACKAGE / mutant.fault.file
    sound = path.read_bytes()
    path.write_bytes(mutated(mutant, folder))
    try:
        code = run(folder, mutant.tests, log)
    finally:
        path.write_bytes(sound)
    if code is None or code < 0:  # a loop without end, or a crash
        return "killed"
    return {0: "SURVIVED", FAILED: "killed", INTERRUPTED: "killed"}.get(code, "ERROR")


def is_sound(tests: str, folder: Path, log: Path) -> bool:
    """Whether the tests pass without a fault: only then does their failure say anything."""
    if run(folder, tests, log) == 0:
        return True
    say(f"fails without a fault: {tests}\n{log.read_text(encoding='utf-8')[-3000:]}")
    return False


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def describe(mutant: Mutant) -> str:
    """One line: file, line, rule, what stands there and what takes its place, and the line itself."""
    file, line, rule, start, end, new = mutant.fault
    source = (ROOT / PACKAGE / file).read_bytes()
    old, new = (" ".join(text.decode().split()) for text in (source[start:end], new))
    whole = source.splitlines()[line - 1].decode().strip()
    return f"{file}:{line} {rule}: {old} -> {new or '(nothing)'}   in: {whole}"


def main() -> int:
    """Run the mutants asked for; 0 when enough were killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="lines of --list that hold one")
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    parser.add_argument("--sound", action="store_true", help="first run the tests without a fault")
    parser.add_argument("--verbose", action="store_true", help="show the end of each test run")
    parser.add_argument("--count", type=int, default=COUNT, help="how many of those made by rule")
    parser.add_argument("--seed", type=int, default=0, help="of the sample of those")
    given = parser.parse_args()

    def asked(mutants):
        return [m for m in mutants if any(text in describe(m) for text in given.only)]

    chosen = asked(by_hand()) + sample(asked(by_rule()), given.count, given.seed)
    if given.list or not chosen:
        say("\n".join(map(describe, chosen)) or f"no mutant holds {given.only!r}")
        return 0 if chosen else 1
    left = []
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        folder, log = Path(name) / "tree", Path(name) / "log"
        copy_tree(folder)
        sound = {}
        for mutant in chosen:
            if given.sound and mutant.tests not in sound:
                sound[mutant.tests] = is_sound(mutant.tests, folder, log)
            told = sound.get(mutant.tests, True)
            found = kill(mutant, folder, log) if told else "ERROR"
            said = log.read_text(encoding="utf-8").splitlines()[-3:]
            left += [] if found == "killed" else [(found, mutant)]
            say(f"{found:<9} {describe(mutant)}")
            if given.verbose:
                say("\n".join(f"    {line}" for line in said))
    score = 1.0 - len(left) / len(chosen)
    say(f"\n{len(chosen) - len(left)} of {len(chosen)} killed, {score:.0%}")
    for found, mutant in left:
        say(f"{found}: {describe(mutant)}\n  tests: {mutant.tests}")
    errors = any(found == "ERROR" for found, _ in left)
    return 0 if score >= ENOUGH and not errors else 1


if __name__ == "__main__":
    sys.exit(main())
