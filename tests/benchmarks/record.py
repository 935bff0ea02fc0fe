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
ON_GPU = ("gpu",)  # left out where JAX finds none
BAR = "\u2501"  # of what progress bars are made
OPTIONS = {"DIR": "--data DIR", "PYTHON": "--peers PYTHON"}
PACKAGES = ("pymc_scalable_gp", "pymc", "pytensor", "numba", "numpy", "jax")

# What is run for each result: script and options. DIR and PYTHON are those of the command line; what needs
# one that is not given is left out, and its last result stays.
RUNS = {
    name: f"{folder}/{text}"
    for folder, runs in {
        BENCH: {
            "linops": "bench_linops.py",
            "first_use": "bench_first_use.py",
            "suggest": "bench_suggest.py",
            "classes": "bench_classes.py",
            "adaptation": "bench_adaptation.py",
            "scale": "bench_scale.py",
            "speed": "bench_speed.py --data DIR",
            "structure": "bench_structure.py",
            "structure_compilation": "bench_structure.py --parts compilation",
            "type1": "bench_type1.py --data DIR",
            "type1_big": "bench_type1.py --big",
            "reconstruction": "bench_reconstruction.py --out docs/_static/reconstruction.png",
            "importance": "bench_importance.py --data DIR",
            "evidence": "bench_reliability.py --parts evidence",
            "seeds": "bench_reliability.py --data DIR --parts seeds --seeds 5 --draws 1000",
            "doubled": "bench_reliability.py --data DIR --parts doubled --cores 1",
            "importance_large": "bench_importance.py --data DIR --parts vif --big",
            "importance_correct": "bench_importance.py --data DIR --parts correct --big",
            "importance_correct_more": "bench_importance.py --data DIR --parts correct --rows 10000",
            "large": "bench_reliability.py --parts large",
            "large_million": "bench_reliability.py --parts large --rows 1000000",
            "importance_shapes": "bench_importance.py --parts shapes",
            "likelihoods": "bench_likelihoods.py --parts counts,classes,survival,gaussian",
            "likelihoods_more": "bench_likelihoods.py --parts outliers,space_time",
            "likelihoods_dense": "bench_likelihoods.py --parts dense,growth",
            "likelihoods_many": "bench_likelihoods.py --parts many",
            "likelihoods_gpboost": "bench_likelihoods.py --peers PYTHON --parts gpboost",
            "posterior": "bench_posterior.py --data DIR --out docs/_static/posterior.png",
            "gpu": "bench_gpu.py --data DIR --posterior 10000,36000",
            "shift": "bench_shift.py --data DIR --sets kin40k,elevators --rows 500",
            "shift_nuts": "bench_shift.py --data DIR --sets protein --rows 500 --nuts",
            "uci": (
                "bench_uci.py --data DIR --sets kin40k,elevators,bike,protein,pumadyn32nm,tamielectric "
                "--kernels Matern32 --cores 2"
            ),
            "preconditioner": "bench_preconditioner.py --data DIR",
            "series": "bench_series.py --parts gradient,posterior,million,hourly",
            "series_celerite2": "bench_series.py --peers PYTHON --parts gradient",
            "softki": "bench_softki.py --data DIR",
            "vecchia": "bench_vecchia.py",
            "order": "bench_order.py --data DIR",
            "vecchia_gpboost": "bench_vecchia.py --rows 5000 --peers PYTHON",
            "vecchia_rows": "bench_vecchia_rows.py --big",
            "peers_counts": "bench_peers.py --peers PYTHON --parts counts",
            "peers_kin40k": "bench_peers.py --data DIR --peers PYTHON --parts kin40k",
            "peers_series": "bench_peers.py --data DIR --peers PYTHON --parts series",
        },
        TABLES: {
            "table_softki": "softki.py --data DIR --nuts-folds 0",
            "table_softki_noise": (
                "softki.py --data DIR --nuts-folds 0 --noise learned --sets bike,elevators"
            ),
            "table_kmcg": "kmcg.py --parts grids,sound,dense --data DIR --draws 0",
            "table_skip": "skip.py --gpytorch PYTHON",
            "table_skip_frozen": "skip.py --parts frozen",
            "table_skip_uci": "skip.py --parts uci --rank 15 --data DIR",
            "table_cholqr": "cholqr.py --parts strings,digits,start,cost",
            "table_cholqr_kin40k": "cholqr.py --parts kin40k --points 128 256 --approx VFE --data DIR",
            "table_cholqr_gains": "cholqr.py --parts gains --points 256 --data DIR",
            "vecchia_kl": "vecchia_kl.py",
            "vif": "vif.py --data DIR --share 0.444 --jobs 2",
            "vif_nuts": "vif_nuts.py --data DIR",
        },
        "examples": {
            "growth_tasks": "growth.py --parts tasks --children 5 20 60 215 --exact 5000 --draws 500"
        },
    }.items()
    for name, text in runs.items()
}


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
    """How many cores this process may use, and how many threads BLAS, where that was said."""
    allowed = hasattr(os, "sched_getaffinity")
    count = len(os.sched_getaffinity(0)) if allowed else os.cpu_count()
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    said = f", OPENBLAS_NUM_THREADS={threads}" if threads and count > 1 else ""
    return f"{count} core{'' if count == 1 else 's'}{said}"


def has_gpu() -> bool:
    """Whether JAX computes on something else than the processor."""
    import jax

    return jax.default_backend() != "cpu"


def processor() -> str:
    """Model of the processor, or its architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def run(name, given) -> bool:
    """Run one script, show what it prints, and keep it."""
    text = RUNS[name]
    missing = [option for word, option in OPTIONS.items() if word in text and not given[word]]
    if name in ON_GPU and not has_gpu():
        missing.append("a GPU")
    if missing:
        sys.stdout.write(f"== {name}: left out (give {' and '.join(missing)})\n")
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
    kept = "".join(line for line in printed if BAR not in line).strip("\n")
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
