"""Nearest-neighbour likelihoods by rows: seconds to order, to take a gradient, and peak memory.

python tests/benchmarks/bench_vecchia_rows.py [--rows 10000 100000] [--inputs 1 2 3] [--points 0 64]
                                              [--neighbors 15] [--block 8] [--big]

Uniform inputs, Matern 3/2 whose lengthscale holds about 50 rows. Each case runs in a process of its own;
"GiB" is its peak resident memory, of which any PyMC model takes 0.6. ``--big`` has a million rows.
"""

import argparse
import multiprocessing
import resource
import time

import numpy as np
import pymc as pm

import pymc_scalable_gp as sgp


def case(n, d, points, neighbors, block):
    """Print one line."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (n, d))
    length = (50.0 / n) ** (1.0 / d)
    y = np.sin(7.0 * X).sum(axis=1) + 0.1 * rng.standard_normal(n)
    clock = time.perf_counter()
    with pm.Model() as model:
        ell = pm.LogNormal("ell", np.log(length), 0.5)
        eta, sigma = pm.HalfNormal("eta", 1), pm.HalfNormal("sigma", 1, initval=0.2)
        gp = sgp.VecchiaMarginal(
            cov_func=eta**2 * pm.gp.cov.Matern32(d, ls=ell), n_inducing=points,
            neighbors=neighbors, block=block,
        )  # fmt: skip
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, progressbar=False)
    ordered = time.perf_counter() - clock
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    start = model.initial_point(0)
    x = np.array([float(start[v.name]) for v in model.value_vars])
    value, slope = function(x)
    clock = time.process_time()
    function(x)
    seconds = time.process_time() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    state = "" if np.isfinite([value, *slope]).all() else "  NOT FINITE"
    print(
        f"n={n:<8d} d={d} r={points:<4d} k={neighbors} g={block}: order {ordered:6.1f} s  gradient "
        f"{seconds:7.3f} s = {1e6 * seconds / n:5.2f} us a row  {peak:.2f} GiB{state}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--inputs", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--points", type=int, nargs="+", default=[0, 64])
    parser.add_argument("--neighbors", type=int, default=15)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--big", action="store_true", help="a million rows too")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for n in [*args.rows, *([1_000_000] if args.big else [])]:
        for d in args.inputs:
            for points in args.points:
                process = context.Process(target=case, args=(n, d, points, args.neighbors, args.block))
                process.start()
                process.join()


if __name__ == "__main__":
    main()
