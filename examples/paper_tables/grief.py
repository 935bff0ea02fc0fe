"""Table 1 of the GP-GRIEF paper (Evans & Nair 2018): RMSE on UCI data, type II and type I.

    python examples/paper_tables/grief.py --data DIR --sets yacht,concrete --folds 2
    python examples/paper_tables/grief.py --quick        # a simulated set, under a minute

DIR holds NAME.npz files with X, y, n and test_mask. Both types start from the exact GP's MAP on
min(n, 1000) rows. Type II: kernel parameters by MAP under the GP-GRIEF likelihood, the eigenfunctions
selected anew at the MAP. Type I: kernel fixed, NUTS over the eigenfunctions' weights and the noise.
"""

import argparse
import logging
import os
import sys
import time
import warnings

# Each function here is called a few hundred times: compile it in a second, not in twenty. The
# package's operations run at full speed either way, and nutpie compiles the sampled density itself.
os.environ.setdefault("PYTENSOR_FLAGS", "mode=FAST_COMPILE")

import numpy as np
import pymc as pm
from _data import append, find, load, read_results, simulate

import pymc_scalable_gp as sgp

# Mean and sd over 10 folds in the paper: type II, type I.
PAPER = {
    "challenger": ((0.554, 0.277), (0.519, 0.261)),
    "fertility": ((0.172, 0.055), (0.166, 0.051)),
    "concreteslump": ((3.972, 1.891), (3.470, 1.712)),
    "servo": ((0.280, 0.085), (0.268, 0.075)),
    "breastcancer": ((27.843, 3.910), (30.568, 3.340)),
    "yacht": ((0.170, 0.083), (0.120, 0.070)),
    "autompg": ((2.607, 0.356), (2.563, 0.369)),
    "housing": ((3.212, 0.864), (2.887, 0.489)),
    "stock": ((0.005, 0.0005), (0.005, 0.0005)),  # printed as .005 +- .000: the rounding
    "energy": ((0.490, 0.057), (0.461, 0.064)),
    "concrete": ((5.232, 0.723), (5.156, 0.766)),
    "solar": ((0.786, 0.198), (0.809, 0.193)),
    "wine": ((0.483, 0.052), (0.477, 0.047)),
    "pumadyn32nm": ((0.20, 0.005), (0.212, 0.004)),
    "elevators": ((0.091, 0.002), (0.097, 0.001)),
    "kin40k": ((0.206, 0.004), (0.206, 0.004)),
}
KEYS = ("set", "type", "fit", "fold", "rank", "grid", "approx", "max_rows", "seed")
VALUES = ("n", "d", "features", "rmse", "nlpd", "coverage", "seconds", "divergences")


def priors(d):
    """Weakly informative priors for standardised data; modes 4.5, 1 and 0.1."""
    ell = pm.LogNormal("ell", np.log(4.5) + 1, 1, shape=d)
    eta = pm.LogNormal("eta", 1, 1)
    sigma = pm.LogNormal("sigma", np.log(0.1) + 1, 1)
    return eta**2 * pm.gp.cov.ExpQuad(d, ls=ell), sigma


def fit_start(fold, args, k):
    """MAP of the exact GP on at most 1000 rows."""
    with pm.Model():
        cov, sigma = priors(fold.X.shape[1])
        gp = sgp.GriefGP(cov_func=cov)
        return sgp.subset_map(
            gp, fold.X, fold.y, sigma,
            max_rows=args.start_rows, random_seed=args.seed + k, progressbar=args.progress,
        )  # fmt: skip


def type_two(fold, start, rank, args):
    """MAP of the kernel parameters, the eigenfunctions selected at the start, then at that MAP.

    With ``--nuts`` draws from the posterior under the last selection follow.
    """
    point = start
    for _ in range(args.rounds):
        with pm.Model() as model:
            cov, sigma = priors(fold.X.shape[1])
            gp = sgp.GriefGP(cov_func=cov, rank=rank, grid=args.grid, approx=args.approx)
            gp.build(fold.X, point=point)
            gp.marginal_likelihood("y", X=fold.X, y=fold.y, sigma=sigma)
            found = pm.find_MAP(
                initvals=point, jitter=False, progressbar=args.progress, maxiter=args.maxiter
            )
            point = {name: found[name] for name in start}
            mean, var = gp.predict(fold.X_test, point, diag=True, pred_noise=True)
            extra = {"features": gp.rank}
    if args.nuts:
        with model:
            return sample(gp.predict_posterior, fold, point, extra, args)
    return mean, var, extra


def type_one(fold, start, rank, args):
    """Posterior of the weights and the noise variance, the kernel fixed at `start`."""
    d = fold.X.shape[1]
    cov = float(start["eta"]) ** 2 * pm.gp.cov.ExpQuad(d, ls=start["ell"])
    with pm.Model():
        gp = sgp.GriefGP(cov_func=cov, rank=rank, grid=args.grid, rotate=True)
        r = gp.build(fold.X, progressbar=args.progress)
        w = sgp.weights_prior("w", r, mode=1, variance=100)
        # The paper's prior of sigma^2: log-normal, mode sigma_0^2, variance 0.04.
        noise = sgp.weights_prior("noise", 1, mode=float(start["sigma"]) ** 2, variance=0.04)[0]
        gp.marginal_likelihood("y", X=fold.X, y=fold.y, sigma=pm.math.sqrt(noise), weights=w)
        modes = {"w": np.ones(r), "noise": [start["sigma"] ** 2]}
        return sample(gp.predict_posterior, fold, modes, {"features": r}, args)


def sample(predict_posterior, fold, start, extra, args):
    """NUTS for the model in context, and the mixture's mean and variance at the test rows."""
    options = {"random_seed": args.seed, "progressbar": args.progress}
    idata = pm.sample(
        tune=args.draws, draws=args.draws, chains=2, cores=args.cores, nuts_sampler="nutpie",
        initvals=start, compute_convergence_checks=False, **options,
    )  # fmt: skip
    pred = predict_posterior(
        fold.X_test, idata, pred_noise=True, num_samples=min(400, 2 * args.draws), **options
    )
    divergences = int(idata["sample_stats"]["diverging"].sum())
    return pred["mean"].values, pred["sd"].values ** 2, extra | {"divergences": divergences}


def run_fold(data, k, types, args):
    """Rows of results of one fold."""
    fold = data.fold(k)
    clock = time.perf_counter()
    start = fit_start(fold, args, k)
    start_seconds = time.perf_counter() - clock
    for kind in types:
        clock = time.perf_counter()
        fit = type_two if kind == "II" else type_one
        mean, var, extra = fit(fold, start, rank_of(data, kind, args), args)
        seconds = start_seconds + time.perf_counter() - clock
        yield key_of(data, kind, k, args) | {
            "n": len(data.y), "d": data.X.shape[1], "divergences": "", "seconds": f"{seconds:.2f}",
            **extra, **{name: f"{value:.6g}" for name, value in fold.score(mean, var).items()},
        }  # fmt: skip


def rank_of(data, kind, args):
    """The paper's rank: for type II n rounded down to a power of ten, at most 1000."""
    if kind == "I" or args.full_rank:
        return args.rank
    return min(args.rank, 10 ** int(np.log10(len(data.y))))


def key_of(data, kind, k, args):
    """What tells a row of results from others, as strings."""
    approx = (args.approx or "FITC") if kind == "II" else "DTC"
    rows = "" if args.max_rows is None else args.max_rows
    fit = "NUTS" if kind == "I" or args.nuts else "MAP"
    rank = rank_of(data, kind, args)
    values = (data.name, kind, fit, k, rank, args.grid, approx, rows, args.seed)
    return {name: str(value) for name, value in zip(KEYS, values, strict=True)}


def print_table(kind, rows):
    """One line per data set: mean and sd over folds beside the paper's."""
    print(f"\nType {kind}")
    print(
        f"{'data':14}{'n':>7}{'d':>4}{'folds':>6}  {'RMSE':>17}  {'paper':>17}  {'ok?':5}"
        f"{'NLPD':>9}{'cover90':>9}{'s/fold':>8}"
    )
    names = dict.fromkeys(row["set"] for row in rows)
    for name in names:
        mine = [row for row in rows if row["set"] == name]
        rmse, nlpd, cover, seconds = (
            np.array([float(row[column]) for row in mine])
            for column in ("rmse", "nlpd", "coverage", "seconds")
        )
        sd = f"{rmse.std(ddof=1):.4f}" if len(rmse) > 1 else "-"
        paper, verdict = "-", "-"
        if name in PAPER:
            mean, spread = PAPER[name][kind == "I"]
            paper = f"{mean:.3f} ± {spread:.3f}"
            verdict = "yes" if rmse.mean() <= mean + spread else "NO"
            verdict = "best" if rmse.mean() < mean else verdict
        print(
            f"{name:14}{mine[0]['n']:>7}{mine[0]['d']:>4}{len(mine):>6}  "
            f"{rmse.mean():>8.4f} ± {sd:>6}  {paper:>17}  {verdict:5}"
            f"{nlpd.mean():>9.3f}{cover.mean():>9.2f}{seconds.mean():>8.1f}"
        )


def main():
    args = parse()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message="Xnew lies outside")
    warnings.filterwarnings("ignore", message="rank=")
    warnings.filterwarnings("ignore", category=FutureWarning, message="`find_MAP`")
    types = ["II", "I"] if args.type == "both" else [args.type]
    if args.data is None and not args.quick:
        raise SystemExit("give --data DIR with the data files, or --quick for a simulated set")
    if args.quick:
        sets = [simulate()]
    else:
        names = list(PAPER) if args.sets is None else args.sets.split(",")
        paths = {name: find(args.data, name) for name in names}
        missing = [name for name, path in paths.items() if path is None]
        if missing:
            print(f"not in {args.data}: {', '.join(missing)}")
        sets = [load(path) for path in paths.values() if path is not None]
        sets = [data.head(args.max_rows, args.seed) for data in sets]
    done = read_results(args.out)
    known = [{name: row[name] for name in KEYS} for row in done]
    shown = []
    for data in sets:
        folds = args.folds or (10 if len(data.y) < 2000 else 2)
        for k in range(min(folds, data.test.shape[1])):
            keys = {kind: key_of(data, kind, k, args) for kind in types}
            shown += [done[known.index(key)] for key in keys.values() if key in known]
            todo = [kind for kind, key in keys.items() if key not in known]
            for row in run_fold(data, k, todo, args) if todo else ():
                append(args.out, row, KEYS + VALUES)
                shown.append(row)
                print(
                    f"{data.name} fold {k} type {row['type']}: RMSE {row['rmse']}, "
                    f"NLPD {row['nlpd']}, coverage {row['coverage']}, {row['seconds']} s",
                    file=sys.stderr,
                )
    for kind in types:
        print_table(kind, [row for row in shown if row["type"] == kind])


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--data", help="folder with NAME.npz files")
    add("--sets", help="comma-separated names; default: every set of the table that is there")
    add("--folds", type=int, help="default: 10 for n < 2000, else 2")
    add("--type", choices=["I", "II", "both"], default="both")
    add("--max-rows", type=int, help="use this many rows of each set")
    add("--rank", type=int, default=1000)
    add("--grid", type=int, default=10, help="nodes per dimension")
    add("--approx", choices=["DTC", "FITC", "VFE"], help="of type II; default: the package's")
    add("--start-rows", type=int, default=1000, help="rows of the exact GP that gives the start")
    add("--rounds", type=int, default=2, help="type II: selections and MAP searches")
    add("--maxiter", type=int, default=200, help="type II: steps of one MAP search")
    add("--full-rank", action="store_true", help="type II: --rank eigenfunctions whatever n")
    add("--nuts", action="store_true", help="type II: sample the kernel parameters, from their MAP")
    add("--draws", type=int, default=500, help="tuning steps and draws of each of 2 chains")
    add("--cores", type=int, default=2)
    add("--out", help="CSV of results by fold, written as they come; folds in it are not run again")
    add("--quick", action="store_true", help="a simulated set only, in under a minute")
    add("--seed", type=int, default=0)
    add("--no-progress", dest="progress", action="store_false")
    return parser.parse_args()


if __name__ == "__main__":
    main()
