"""Run benchmark scripts, and keep what they print, with command, date, machine and versions, for the docs.

    python tests/benchmarks/record.py [NAME ...] [--data DIR] [--peers PYTHON] [--list]

The results are the text files of docs/benchmarks; pages show those that they name. A script that fails
leaves its last result as it was, and the exit status says so in the end.
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
BENCH, TABLES = "tests/benchmarks", "examples/paper_tables"
PACKAGES = ("pymc_scalable_gp", "pymc", "pytensor", "numba", "numpy", "jax")

# What is run for each result: script and options. DIR and PYTHON are those of the command line. Without
# --data scripts take simulated data; what needs --peers is left out, and its last result stays.
RUNS = {
    "linops": f"{BENCH}/bench_linops.py",
    "first_use": f"{BENCH}/bench_first_use.py",
    "speed": f"{BENCH}/bench_speed.py --data DIR",
    "type1": f"{BENCH}/bench_type1.py --data DIR",
    "type1_big": f"{BENCH}/bench_type1.py --big",
    "posterior": f"{BENCH}/bench_posterior.py --quick",
    "preconditioner": f"{BENCH}/bench_preconditioner.py --quick",
    "reconstruction": f"{BENCH}/bench_reconstruction.py --quick",
    "scale": f"{BENCH}/bench_scale.py --quick",
    "softki": f"{BENCH}/bench_softki.py --quick",
    "suggest": f"{BENCH}/bench_suggest.py --quick",
    "classes": f"{BENCH}/bench_classes.py",
    "vecchia": f"{BENCH}/bench_vecchia.py",
    "vecchia_gpboost": f"{BENCH}/bench_vecchia.py --rows 5000 --peers PYTHON",
    "vecchia_rows": f"{BENCH}/bench_vecchia_rows.py --big",
    "vif": f"{TABLES}/vif.py --data DIR --share 0.444 --jobs 2",
    "vif_nuts": f"{TABLES}/vif_nuts.py --data DIR",
    "vif_posterior": f"{TABLES}/vif_posterior.py --data DIR",
} | {
    f"peers_{part}": f"{BENCH}/bench_peers.py --data DIR --peers PYTHON --parts {part}"
    for part in ("counts", "kin40k", "series")
} | {
    f"table_{name}": f"{TABLES}/{name}.py --quick"
    for name in (
        "grief", "softki", "kmcg", "skip", "cholqr", "vif", "vecchia_kl", "vif_posterior", "frozen",
    )
}  # fmt: skip


def command_of(name, given) -> str:
    """A run's command; without --data if there is no folder."""
    return RUNS[name] if given["DIR"] else RUNS[name].replace(" --data DIR", "")


def heading(text, seconds):
    """Lines that say where the figures are from."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return "\n".join(
        f"# {key}: {value}"
        for key, value in {
            "command": f"python {text}",
            "date": f"{datetime.date.today():%Y-%m-%d}, {seconds:.0f} s",
            "machine": f"{cores()}, {processor()}, Python {platform.python_version()}",
            "versions": versions,
        }.items()
    )


def cores() -> str:
    """How many cores this process may use."""
    allowed = hasattr(os, "sched_getaffinity")
    count = len(os.sched_getaffinity(0)) if allowed else os.cpu_count()
    return f"{count} core{'' if count == 1 else 's'}"


def processor() -> str:
    """Model of the processor, or its architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def run(name, given) -> bool:
    """Run one script, show what it prints, and keep it."""
    text = command_of(name, given)
    if "PYTHON" in text and given["PYTHON"] is None:
        sys.stdout.write(f"== {name}: left out (give --peers PYTHON)\n")
        return True
    command = [sys.executable, *(str(given.get(word, word)) for word in text.split())]
    sys.stdout.write(f"== python {text}\n")
    sys.stdout.flush()
    clock, printed = time.perf_counter(), []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            printed.append(line)
    if process.returncode:
        sys.stdout.write(f"failed with status {process.returncode}\n")
        return False
    kept = "".join(printed).strip("\n")
    RESULTS.mkdir(exist_ok=True)
    head = heading(text, time.perf_counter() - clock)
    (RESULTS / f"{name}.txt").write_text(f"{head}\n\n{kept}\n", encoding="utf-8")
    return True


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="all when left out")
    parser.add_argument("--data", type=Path, help="folder that holds the data sets, NAME.npz")
    parser.add_argument("--peers", help="a Python that has other packages")
    parser.add_argument("--list", action="store_true", help="names and commands")
    options = parser.parse_args()
    if options.list:
        sys.stdout.writelines(f"{name:16} {text}\n" for name, text in RUNS.items())
        return 0
    unknown = set(options.names) - set(RUNS)
    if unknown:
        parser.error(f"no such result: {', '.join(sorted(unknown))}; see --list")
    given = {"DIR": options.data and options.data.resolve(), "PYTHON": options.peers}
    done = [run(name, given) for name in options.names or RUNS]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
