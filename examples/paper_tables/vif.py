"""Features alone, and with what they miss put back by neighbours: held-out errors at the MAP.

    python examples/paper_tables/vif.py --data DIR --sets kin40k,protein --folds 1
    python examples/paper_tables/vif.py --quick           # a simulated set, in about two minutes

DIR holds NAME.npz files with X, y, n and test_mask. Inputs and target are standardised on the training
rows; one lengthscale per input. Hyperparameters: an exact GP on a thousand rows (`sgp.subset_map`), then
L-BFGS on all rows, then neighbours chosen again and L-BFGS once more. Means over folds, and the standard
deviation of the error. "exact" is the exact GP of Wang et al. (2019, Matern 3/2), trained on 4/9 of the
rows, as `--share 0.444` does; "SGPR" theirs with 512 points. Sets, folds and kernels are shared among
`--jobs` processes.
"""

import argparse
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import batched, product, repeat
from multiprocessing import get_context

import numpy as np
import pymc as pm
from _data import append, find, load, simulate

import pymc_scalable_gp as sgp

PAPER = {  # exact GP, SGPR: RMSE
    "kin40k": (0.099, 0.273),
    "protein": (0.536, 0.656),
    "bike": (0.220, 0.362),
    "elevators": (0.394, 0.437),
    "keggdirected": (0.086, 0.104),
}
COLUMNS = (
    "set", "fold", "kernel", "approx", "inducing", "neighbors", "block", "pred_neighbors", "rmse",
    "nlpd", "coverage", "n", "sigma", "iterations", "seconds",
)  # fmt: skip
SETTINGS = COLUMNS[4:8]
REACH = 3.0  # of the logarithms of hyperparameters, in one run of L-BFGS


def kernel_of(name, d):
    """Kernel and noise with priors for standardised data, in the model context."""
    ell, eta = pm.LogNormal("ell", 0.5, 1.0, shape=d), pm.LogNormal("eta", 0.0, 1.0)
    return eta**2 * getattr(pm.gp.cov, name)(d, ls=ell), pm.LogNormal("sigma", -1.5, 1.0)


def class_of(approx, cov, args):
    """The same features, with or without neighbours."""
    if approx == "VIF":
        return sgp.VecchiaMarginal(
            cov_func=cov, n_inducing=args.inducing, neighbors=args.neighbors, block=args.block,
            pred_neighbors=args.pred_neighbors,
        )  # fmt: skip
    return sgp.CholQRMarginal(cov_func=cov, n_inducing=args.inducing, approx=approx)


def best_point(gp, start, steps):
    """Maximum a posteriori, order and neighbours chosen again on the way; in the model context.

    Bounds keep L-BFGS from first steps to where no covariance matrix can be factorised.
    """
    point = start
    for i, count in enumerate(steps):
        if i:
            gp.rebuild(point)
        model = pm.modelcontext(None)
        near = np.concatenate([np.log(point[rv.name]).ravel() for rv in model.free_RVs])
        point = pm.find_MAP(
            initvals=point, maxiter=count, progressbar=False, jitter=False,
            bounds=list(zip(near - REACH, near + REACH, strict=True)), return_inferencedata=False,
        )  # fmt: skip
    return point


def training_fold(data, k, share):
    """Fold k; where a share of all rows is asked for, its training part cut down to as many."""
    fold = data.fold(k)
    count = len(fold.y) if share is None else min(len(fold.y), round(share * len(data.y)))
    rows = np.sort(np.random.default_rng(k).permutation(len(fold.y))[:count])
    return replace(fold, X=fold.X[rows], y=fold.y[rows])


def run_fold(fold, kernel, approx, start, args):
    """Scores of one fit."""
    clock = time.perf_counter()
    with pm.Model():
        cov, sigma = kernel_of(kernel, fold.X.shape[1])
        gp = class_of(approx, cov, args)
        gp.build(fold.X, point=start)
        gp.marginal_likelihood("y", X=fold.X, y=fold.y, sigma=sigma)
        steps = args.steps if approx == "VIF" else args.steps[:1]
        point = best_point(gp, start, steps)
        mean, var = gp.predict(fold.X_test, point, diag=True, pred_noise=True)
    found = {"n": len(fold.y), "sigma": float(point["sigma"]), "iterations": sum(steps)}
    return found | fold.standard_score(mean, var) | {"seconds": time.perf_counter() - clock}


def first_point(fold, kernel):
    """Hyperparameters of the exact GP on a thousand rows."""
    with pm.Model():
        cov, sigma = kernel_of(kernel, fold.X.shape[1])
        return sgp.subset_map(
            sgp.ExactMarginal(cov_func=cov), fold.X, fold.y, sigma, random_seed=0,
            progressbar=False,
        )  # fmt: skip


def rows_of(task, args):
    """One fold of a set under one kernel: a row of scores for each approximation."""
    name, kernel, k = task
    warnings.filterwarnings("ignore", message="`find_MAP` will return|The optimizer did not converge")
    warnings.filterwarnings("ignore", message="only .* inducing points are independent")
    data = simulate() if args.quick else load(find(args.data, name)).head(args.rows)
    fold = training_fold(data, k, args.share)
    start = first_point(fold, kernel)
    rows = []
    for approx in args.approx.split(","):
        row = {"set": name, "fold": k, "kernel": kernel, "approx": approx}
        row |= {key: getattr(args, key) for key in SETTINGS}
        rows.append(row | run_fold(fold, kernel, approx, start, args))
        append(args.out, rows[-1], COLUMNS)
    return rows


def main():
    """Run what the command line asks for."""
    args = parse()
    names = ["simulated"] if args.quick else args.sets.split(",")
    found = [name for name in names if args.quick or find(args.data, name)]
    for name in [name for name in names if name not in found]:
        print(f"{name}: no file under {args.data}, skipped")
    tasks = list(product(found, args.kernels.split(","), range(args.folds)))
    print(
        f"{'set':13s}{'n':>7s} {'kernel':9s}{'approx':6s}{'RMSE':>15s}{'NLPD':>8s}{'coverage':>9s}"
        f"{'sigma':>7s}{'s a fit':>8s}{'exact':>7s}{'SGPR':>7s}"
    )
    if args.jobs > 1:  # else the threads of all contend for the same cores
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as jobs:
        done = jobs.map(rows_of, tasks, repeat(args))
        for folds in batched(done, args.folds, strict=True):
            for rows in zip(*folds, strict=True):
                show(rows)


def show(rows):
    """A line of the table, from the rows of the folds."""
    exact, sgpr = PAPER.get(rows[0]["set"], (np.nan, np.nan))
    errors = np.array([row["rmse"] for row in rows])
    mean = {key: np.mean([row[key] for row in rows]) for key in COLUMNS[8:]}
    print(
        f"{rows[0]['set']:13s}{mean['n']:7.0f} {rows[0]['kernel']:9s}{rows[0]['approx']:6s}"
        f"{errors.mean():7.3f} ± {errors.std():5.3f}{mean['nlpd']:8.3f}{mean['coverage']:9.1%}"
        f"{mean['sigma']:7.3f}{mean['seconds']:8.0f}{exact:7.3f}{sgpr:7.3f}",
        flush=True,
    )


def parse():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=".", help="folder of the .npz files")
    parser.add_argument("--sets", default=",".join(PAPER))
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--kernels", default="ExpQuad,Matern32")
    parser.add_argument("--approx", default="VIF,FITC,DTC")
    parser.add_argument("--inducing", type=int, default=128)
    parser.add_argument("--neighbors", type=int, default=30)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--pred-neighbors", type=int, default=240, help="of a new row")
    parser.add_argument("--steps", type=int, nargs="+", default=[40, 40])
    parser.add_argument("--rows", type=int, help="at most so many rows of each set")
    parser.add_argument("--share", type=float, help="train on so much of all rows; else on the whole fold")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", help="CSV file to append to")
    parser.add_argument("--quick", action="store_true", help="a simulated set")
    args = parser.parse_args()
    if args.quick:
        args.folds, args.inducing, args.neighbors = 1, 20, 20
    return args


if __name__ == "__main__":
    main()
