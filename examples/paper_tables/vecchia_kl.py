"""Nats that `VecchiaMarginal` is away from the exact GP, by inducing points, neighbours and block.

    python examples/paper_tables/vecchia_kl.py [--rows 2000] [--draws 20]
    python examples/paper_tables/vecchia_kl.py --quick

Targets are drawn from the exact GP (Matern 5/2, variance 1, noise 0.1) at normal inputs in 2 and 8
dimensions; the Kullback-Leibler divergence is the mean difference of the log densities, in nats a
thousand rows. "cost" is ``(g + k)^2 (m + g + k) / g``, about the operations per row, relative to the
default's.
"""

import argparse
import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_scalable_gp as sgp

NOISE = 0.1
LENGTHS = {2: (0.1, 0.3, 1.0), 8: (1.0, 2.0, 4.0)}  # short, middle, long


def log_density(gp, X):
    """Function of targets (n,)."""
    with pm.Model():
        y = gp.marginal_likelihood("y", X=X, y=np.zeros(len(X)), sigma=NOISE, progressbar=False)
    value = pt.vector("value")
    return pm.compile([value], pm.logp(y, value))


def cost(points, neighbors, block):
    """Operations per row, but for a factor."""
    return (block + neighbors) ** 2 * (points + block + neighbors) / block


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--points", type=int, nargs="+", default=[0, 100, 200])
    parser.add_argument("--neighbors", type=int, nargs="+", default=[15, 30, 60])
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.draws, args.points, args.neighbors = 300, 5, [0, 50], [15]
    rng = np.random.default_rng(0)
    columns = [(d, ls) for d in LENGTHS for ls in LENGTHS[d]]
    print(f"{'m':>4}{'k':>4}{'g':>4}{'cost':>7}" + "".join(f"  d={d} l={ls:<4}" for d, ls in columns))
    settings = [s for s in itertools.product(args.points, args.neighbors, args.blocks)]
    found = {}
    for d, ls in columns:
        X, kernel = rng.standard_normal((args.rows, d)), pm.gp.cov.Matern52(d, ls=ls)
        K = kernel(X).eval() + NOISE**2 * np.eye(args.rows)
        Y = rng.standard_normal((args.draws, args.rows)) @ np.linalg.cholesky(K).T
        exact = log_density(sgp.ExactMarginal(cov_func=kernel), X)
        exact = np.array([exact(y) for y in Y])
        for m, k, g in settings:
            gp = sgp.VecchiaMarginal(cov_func=kernel, n_inducing=m, neighbors=k, block=g)
            near = log_density(gp, X)
            lost = exact - np.array([near(y) for y in Y])
            found[d, ls, m, k, g] = 1000.0 * lost.mean() / args.rows
    for m, k, g in settings:
        row = "".join(f"{found[d, ls, m, k, g]:11.2f}" for d, ls in columns)
        print(f"{m:4d}{k:4d}{g:4d}{cost(m, k, g) / cost(200, 30, 16):7.2f}{row}")


if __name__ == "__main__":
    main()
