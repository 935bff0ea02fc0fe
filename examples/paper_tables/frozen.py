"""How far the posterior of a frozen GRIEF basis is from that of GRIEF itself (type II), same rank.

    python examples/paper_tables/frozen.py --data DIR [--sets concrete,elevators] [--rank 500]
    python examples/paper_tables/frozen.py --quick

All rows of fold 0's training set are summarised, and NUTS samples lengthscales, scale and noise on the
frozen basis: first of the parameters that `sgp.subset_map` finds, then of the posterior mean ("recentred").
Some of those draws are weighted by the type II density (Pareto-smoothed): "mean" is the largest difference
of a posterior mean in posterior sds, "k" the shape of the weights' tail, "nats" the sd of the log
densities' difference over the draws.
"""

import argparse
import time

import pymc as pm
from _data import find, load
from vif import kernel_of
from vif_posterior import HEADER, compare, densities, draw, thinned

import pymc_scalable_gp as sgp


def sample(gp, sigma, X, y, args):
    """Draws on the statistics of the rows, and seconds of pass and sampling."""
    start = time.perf_counter()
    stats = gp.summarize(X, y, progressbar=False)
    passed = time.perf_counter() - start
    gp.marginal_likelihood("y", statistics=stats, sigma=sigma)
    start = time.perf_counter()
    idata = pm.sample(
        args.draws, tune=args.draws // 2, chains=2, cores=2, random_seed=1, progressbar=False,
        initvals=gp.feature_map.reference,
    )  # fmt: skip
    return idata, passed, time.perf_counter() - start


def run(name, data, args):
    """Lines of one set."""
    fold = data.fold(0)
    X, y = fold.X, fold.y
    with pm.Model() as model:
        cov, sigma = kernel_of("ExpQuad", X.shape[1])
        full = sgp.GriefGP(cov_func=cov, rank=args.rank, approx="DTC", grid=10)
        start = sgp.subset_map(full, X, y, sigma, random_seed=0, progressbar=False)
    point, idata = start, None
    for label in ("subset_map", "recentred"):
        with pm.Model() as model:
            cov, sigma = kernel_of("ExpQuad", X.shape[1])
            frozen = sgp.GriefGP(cov_func=cov, rank=args.rank, grid=10, basis="frozen")
            frozen.build(X, point=point)
            if idata is not None:
                frozen.recentre(X, idata)
            idata, passed, spent = sample(frozen, sigma, X, y, args)
        with pm.Model() as type_two:
            cov, sigma = kernel_of("ExpQuad", X.shape[1])
            gp = sgp.GriefGP(cov_func=cov, rank=args.rank, grid=10, approx="DTC")
            gp.build(X, point=frozen.feature_map.reference)
            gp.marginal_likelihood("y", X, y, sigma)
        report(name, label, idata, model, type_two, (passed, spent), args)


def report(name, label, idata, model, type_two, seconds, args):
    """A line: the weighted draws beside the draws."""
    draws, rhat, ess = thinned(idata, max(1, 2 * args.draws // args.weighted))
    diverging = int(idata["sample_stats"]["diverging"].sum())
    near, exact = densities(model, draws), densities(type_two, draws)
    shift, spread, tail, gap = compare(draws, near, exact)  # from the one to the other
    passed, spent = seconds
    print(
        f"{name:13s}{label:>22s}{shift:8.3f}{spread:8.1%}{tail:7.2f}{gap:8.2f}  pass {passed:.1f} s, "
        f"NUTS {spent:.0f} s, R-hat {rhat:.3f}, ESS {ess:.0f}, {diverging} divergences",
        flush=True,
    )


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=".", help="folder of the .npz files")
    parser.add_argument("--sets", default="concrete,elevators")
    parser.add_argument("--rank", type=int, default=500)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--weighted", type=int, default=100, help="draws that are weighted")
    parser.add_argument("--quick", action="store_true", help="200 simulated rows of two inputs")
    args = parser.parse_args()
    if args.quick:
        args.rank, args.draws = 60, 200
    print(HEADER.replace("exact GP's sample", "frozen basis' sample"))
    if args.quick:
        run("2 inputs", draw(2, 200), args)
        return
    for name in args.sets.split(","):
        path = find(args.data, name)
        if path is None:
            print(f"{name}: no file under {args.data}, skipped")
            continue
        run(name, load(path), args)


if __name__ == "__main__":
    main()
