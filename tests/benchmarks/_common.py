"""Data, clocks, fresh processes and tables shared by the benchmark scripts."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "paper_tables")]


def arguments(doc, *, data=False, out=False):
    """Parser with the options that the scripts have in common."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small run of a minute or two")
    if data:
        parser.add_argument("--data", type=Path, help="folder that holds the data sets, NAME.npz")
    if out:
        parser.add_argument("--out", type=Path, help="write the picture to this PNG file")
    return parser


def regression(folder, n, name="kin40k", seed=0):
    """Standardised (X, y, label): n training rows of fold 0, or of a simulated robot arm."""
    from _data import find, load

    path = find(folder, name) if folder else None
    if folder and path is None:
        raise SystemExit(f"--data: there is no {name}.npz in {folder}")
    rng = np.random.default_rng(seed)
    if path is not None:
        fold = load(path).fold(0)
        rows = rng.permutation(len(fold.y))[:n]
        return fold.X[rows], fold.y[rows], name
    from problems import robot_arm, standardize

    problem = robot_arm(n or 15_000, rng)
    X, y = standardize(problem.X)[0], standardize(problem.y)[0]
    return X, y, "simulated robot arm"


def seconds(function, repeats=1):
    """Median wall-clock seconds of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def cpu_seconds(functions, repeats):
    """Least CPU seconds of each function, called in turn."""
    found = np.full((repeats, len(functions)), np.inf)
    for row in found:
        for place, function in enumerate(functions):
            start = time.process_time()
            function()
            row[place] = time.process_time() - start
    return found.min(axis=0)


def fresh_process(script, *options, cache=None, limit=None, threads=None):
    """What `script` reports when run in a new process with empty compilation caches, or with `cache`.

    With `threads` BLAS has so many. None if it takes longer than `limit` minutes.
    """
    with tempfile.TemporaryDirectory() as folder:
        flags = [os.environ.get("PYTENSOR_FLAGS", ""), f"base_compiledir={cache or folder}"]
        env = os.environ | {"PYTENSOR_FLAGS": ",".join(f for f in flags if f)}
        if threads is not None:
            env["OPENBLAS_NUM_THREADS"] = str(threads)
        command = [sys.executable, script, *map(str, options)]
        try:
            done = subprocess.run(
                command, env=env, stdout=subprocess.PIPE, text=True, check=False,
                timeout=limit and 60.0 * limit,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def hand_back(**values):
    """Report to :func:`fresh_process`."""
    print(json.dumps(values), flush=True)


def peak_memory():
    """Largest resident set of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent's pages too, up to the exec
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def table(title, header, rows):
    """Print rows under a header, numbers right-aligned."""
    cells = [[c if isinstance(c, str) else _short(c) for c in row] for row in [header, *rows]]
    widths = [max(len(row[j]) for row in cells) for j in range(len(header))]
    print(f"\n{title}")
    for i, row in enumerate(cells):
        first, rest = row[0].ljust(widths[0]), zip(row[1:], widths[1:], strict=True)
        print("  ".join([first, *(c.rjust(w) for c, w in rest)]).rstrip())
        if i == 0:
            print("  ".join("-" * w for w in widths))
    print(flush=True)


def _short(value):
    """Three significant digits; integers in full."""
    if value is None:
        return ""
    if isinstance(value, int | np.integer):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
