"""What is set before anything is imported: most of the time that tests take is compilation.

What names no mode runs in Python, and back-ends are compared with it by those tests that name them.
Graphs are many small objects that refer to one another, and garbage is looked for less often than usual.
Numba optimises little (not at all would keep it from caching), into a cache of its own, so that no
other program runs that slow code. ``PYTENSOR_FLAGS=mode=NUMBA NUMBA_OPT=3`` tests what users run.
"""

import gc
import os
from pathlib import Path

gc.set_threshold(100_000, 20, 100)
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # JAX: likewise
level = os.environ.setdefault("NUMBA_OPT", "1")
cache = Path(__file__).parents[1] / ".pytest_cache" / f"pytensor-{level}"
flags = list(filter(None, os.environ.get("PYTENSOR_FLAGS", "").split(",")))
named = {flag.split("=")[0].strip() for flag in flags}
if not named & {"mode", "linker"}:
    flags.append("mode=FAST_COMPILE")
if "traceback__limit" not in named:  # where each variable was made is kept at some cost
    flags.append("traceback__limit=0")
if "cxx" not in named:  # PyTensor has C for softmax and its like even in Python: seconds for each
    flags.append("cxx=")
if not named & {"base_compiledir", "compiledir"}:
    flags.append(f"base_compiledir={cache}")
os.environ["PYTENSOR_FLAGS"] = ",".join(flags)

from pytensor.compile.mode import FAST_COMPILE, predefined_modes  # noqa: E402  reads the flags

# In Python graphs run as they are written: to rewrite graphs that are called once took a third of the
# tests' time. Back-ends have all rewrites, and are compared with these.
predefined_modes["FAST_COMPILE"] = FAST_COMPILE.excluding(
    "canonicalize", "stabilize", "specialize", "useless"
)

_cases = [0]


def pytest_runtest_logreport(report):
    """Count the cases that generated tests went through, wherever they ran."""
    if report.when == "call":
        _cases[0] += sum(value for name, value in report.user_properties if name == "cases")


def pytest_unconfigure(config):
    """Last line of a run."""
    if _cases[0] and not hasattr(config, "workerinput"):
        config.get_terminal_writer().line(f"{_cases[0]} generated cases")
