"""Features alone, and with what they miss put back by neighbours: held-out errors at the MAP.

    python examples/paper_tables/vif.py --data DIR --sets kin40k,protein --folds 1
    python examples/paper_tables/vif.py --quick           # a simulated set, in about two minutes

DIR holds NAME.npz files with X, y, n and test_mask. Inputs and target are standardised on the training
rows; one lengthscale an input. Hyperparameters: an exact GP on a thousand rows (`sgp.subset_map`), then
L-BFGS on all rows, then neighbours chosen again and L-BFGS once more.
"exact" is the exact GP of Wang et al. (2019), on 4/9 of the rows; "SGPR" theirs with 512 points.
"""

import argparse
import time
import warnings

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
    "nlpd", "coverage", "sigma", "iterations", "seconds",
)  # fmt: skip
SETTINGS = COLUMNS[4:8]


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


def run_fold(data, k, kernel, approx, start, args):
    """Scores of one fit."""
    fold = data.fold(k)
    clock = time.perf_counter()
    with pm.Model():
        cov, sigma = kernel_of(kernel, fold.X.shape[1])
        gp = class_of(approx, cov, args)
        gp.build(fold.X, point=start)
        gp.marginal_likelihood("y", X=fold.X, y=fold.y, sigma=sigma)
        point, count = start, 0
        for steps in args.steps if approx == "VIF" else args.steps[:1]:
            if count:
                gp.rebuild(point)
            point = pm.find_MAP(initvals=point, maxiter=steps, progressbar=False)
            count += steps
        mean, var = gp.predict(fold.X_test, point, diag=True, pred_noise=True)
    found = {"sigma": float(point["sigma"]), "iterations": count}
    return found | fold.standard_score(mean, var) | {"seconds": time.perf_counter() - clock}


def first_point(data, k, kernel):
    """Hyperparameters of the exact GP on a thousand rows."""
    fold = data.fold(k)
    with pm.Model():
        cov, sigma = kernel_of(kernel, fold.X.shape[1])
        return sgp.subset_map(
            sgp.ExactMarginal(cov_func=cov), fold.X, fold.y, sigma, random_seed=0,
            progressbar=False,
        )  # fmt: skip


def main():
    """Run what the command line asks for."""
    args = parse()
    names = ["simulated"] if args.quick else args.sets.split(",")
    for name in names:
        path = None if args.quick else find(args.data, name)
        if path is None and not args.quick:
            print(f"{name}: no file under {args.data}, skipped")
            continue
        data = simulate() if args.quick else load(path).head(args.rows)
        for k in range(args.folds):
            for kernel in args.kernels.split(","):
                start = first_point(data, k, kernel)
                for approx in args.approx.split(","):
                    row = {"set": name, "fold": k, "kernel": kernel, "approx": approx}
                    row |= {key: getattr(args, key) for key in SETTINGS}
                    row |= run_fold(data, k, kernel, approx, start, args)
                    append(args.out, row, COLUMNS)
                    show(row)


def show(row):
    """One line of the table."""
    exact, sgpr = PAPER.get(row["set"], (np.nan, np.nan))
    print(
        f"{row['set']:13s} {row['kernel']:9s} fold {row['fold']} {row['approx']:5s} "
        f"RMSE {row['rmse']:.3f}  NLPD {row['nlpd']:6.3f}  coverage {row['coverage']:.1%}  "
        f"sigma {row['sigma']:.3f}  {row['seconds']:.0f} s   (exact {exact}, SGPR {sgpr})",
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
    parser.add_argument("--out", help="CSV file to append to")
    parser.add_argument("--quick", action="store_true", help="a simulated set")
    args = parser.parse_args()
    if args.quick:
        args.folds, args.inducing, args.neighbors = 1, 20, 20
    return args


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="only .* inducing points are independent")
        main()
