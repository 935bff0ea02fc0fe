"""Table 1 of the SoftKI paper (Camaño & Huang 2024): RMSE on UCI data, 512 points.

    python examples/paper_tables/softki.py --data DIR --sets bike,elevators --folds 1
    python examples/paper_tables/softki.py --quick        # a simulated set, in about two minutes

DIR holds NAME.npz files with X, y, n and test_mask. Inputs and target are standardised on the training
rows; one lengthscale. While the points are trained the noise variance is 0.001, as in the paper, or
another (--noise 0.1), or trained with them (--noise learned): at most 50 epochs, batches of 1024,
learning rate 0.01; unlike in the paper, a tenth of the training rows stops it early. Which noise suits
a data set shows in their error ("valid", the root mean square), before any test row is seen.
"trained" predicts with that noise, at the trained hyperparameters; "NUTS" infers lengthscale, scale
and sigma with the points fixed. Both use all training rows.
"""

import argparse
import logging
import sys
import time
import warnings

import arviz as az
import numpy as np
import pymc as pm
from _data import append, find, load, read_results, simulate

import pymc_scalable_gp as sgp

# The paper: mean and sd over three seeds of SoftKI with 512 points, mean of SGPR with 512. "authors":
# their code, float32, measured on fold 0 of these data.
PAPER = {
    "kin40k": ((0.237, 0.008), 0.205, None),
    "protein": ((0.649, 0.010), 0.660, None),
    "bike": ((0.204, 0.006), 0.284, 0.218),
    "elevators": ((0.389, 0.010), 0.401, 0.394),
    "keggdirected": ((0.081, 0.005), 0.096, None),
}
KEYS = ("set", "fit", "fold", "points", "epochs", "validation", "objective", "noise", "seed")
VALUES = ("n", "d", "valid", "rmse", "nlpd", "coverage", "sigma", "seconds", "rhat", "ess", "divergences")


def model_of(fold):
    """Kernel, noise and priors for standardised data, in the model context."""
    ell, eta = pm.LogNormal("ell", 0.5, 1.0), pm.LogNormal("eta", 0.0, 1.0)
    sigma = pm.LogNormal("sigma", -1.5, 1.0)
    return eta**2 * pm.gp.cov.ExpQuad(fold.X.shape[1], ls=ell), sigma


def run_fold(data, k, args):
    """Rows of results of one fold."""
    fold = data.fold(k)
    row = {"n": len(data.y), "d": data.X.shape[1]}
    with pm.Model():
        cov, sigma = model_of(fold)
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=args.points)
        clock = time.perf_counter()
        fit = sgp.fit_inducing(
            gp, fold.X, fold.y, sigma if args.noise == "learned" else np.sqrt(float(args.noise)),
            objective=args.objective, epochs=args.epochs,
            batch_size=min(1024, len(fold.y) // 2), validation=args.validation,
            random_seed=args.seed + k, progressbar=args.progress,
        )  # fmt: skip
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=fit.Z)
        gp.marginal_likelihood(
            "y", X=fold.X, y=fold.y, sigma=sigma, progressbar=args.progress
        )  # fmt: skip
        fixed = {} if args.noise == "learned" else {"sigma": np.sqrt(float(args.noise))}
        point = fit.point | fixed
        row["valid"] = fit.validation.min() if len(fit.validation) else np.nan
        found = gp.predict(fold.X_test, point, diag=True, pred_noise=True)
        seconds = time.perf_counter() - clock
        yield row | fold.standard_score(*found) | {
            "fit": "trained", "seconds": seconds, "sigma": float(point["sigma"]),
        }  # fmt: skip
        if k >= args.nuts_folds:
            return
        clock = time.perf_counter()
        idata = pm.sample(
            args.draws, tune=args.draws, chains=2, cores=args.cores,
            initvals=point | {"sigma": 0.2}, random_seed=args.seed, progressbar=args.progress,
            compute_convergence_checks=False,
        )  # fmt: skip
        seconds = time.perf_counter() - clock
        pred = gp.predict_posterior(
            fold.X_test, idata, pred_noise=True, num_samples=50, random_seed=args.seed,
            progressbar=args.progress,
        )  # fmt: skip
    yield row | fold.standard_score(pred["mean"].values, pred["sd"].values ** 2) | {
        "fit": "NUTS", "seconds": seconds, "sigma": float(idata["posterior"]["sigma"].mean()),
        "divergences": int(idata["sample_stats"]["diverging"].sum()),
        "rhat": max(float(v.max()) for v in az.rhat(idata["posterior"].to_dataset()).values()),
        "ess": min(float(v.min()) for v in az.ess(idata["posterior"].to_dataset()).values()),
    }  # fmt: skip


def key_of(data, fit, k, args):
    """What tells a row of results from others, as strings."""
    values = (
        data.name, fit, k, args.points, args.epochs, args.validation, args.objective, args.noise,
        args.seed,
    )  # fmt: skip
    return {name: str(value) for name, value in zip(KEYS, values, strict=True)}


def print_table(rows, points):
    """One line per data set and fit, beside the paper's."""
    print(
        f"\n{points} points; RMSE, negative log predictive density and coverage of 90% intervals in "
        "standardised units\n"
        f"{'data':13}{'fit':9}{'noise':9}{'folds':>5}{'valid':>8}{'RMSE':>16}{'paper':>16}{'authors':>9}{'SGPR':>7}"
        f"{'NLPD':>8}{'cover90':>9}{'sigma':>8}{'s/fold':>8}"
    )
    columns = ("set", "fit", "noise")
    for kind in dict.fromkeys(tuple(row[column] for column in columns) for row in rows):
        mine = [row for row in rows if tuple(row[column] for column in columns) == kind]
        name, fit, noise = kind
        valid, rmse, nlpd, cover, sigma, seconds = (
            np.array([float(row[column]) for row in mine])
            for column in ("valid", "rmse", "nlpd", "coverage", "sigma", "seconds")
        )
        (mean, sd), sgpr, authors = PAPER.get(name, ((np.nan, np.nan), np.nan, None))
        spread = f"± {rmse.std(ddof=1):.4f}" if len(rmse) > 1 else ""
        print(
            f"{name:13}{fit:9}{noise:9}{len(rmse):>5}{valid.mean():>8.4f}"
            f"{rmse.mean():>8.4f} {spread:>8}{mean:>8.3f} ± {sd:.3f}"
            f"{authors or '-':>9}{sgpr:>7.3f}"
            f"{nlpd.mean():>8.3f}{cover.mean():>9.3f}{sigma.mean():>8.3f}{seconds.mean():>8.0f}"
        )


def main():
    args = parse()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message="Xnew lies outside")
    if args.data is None and not args.quick:
        raise SystemExit("give --data DIR with the data files, or --quick for a simulated set")
    if args.quick:
        args.points, args.epochs, args.folds, args.draws = min(args.points, 64), 10, 1, 200
        sets = [simulate()]
    else:
        names = list(PAPER) if args.sets is None else args.sets.split(",")
        paths = {name: find(args.data, name) for name in names}
        missing = [name for name, path in paths.items() if path is None]
        if missing:
            print(f"not in {args.data}: {', '.join(missing)}")
        sets = [load(path) for path in paths.values() if path is not None]
    done = read_results(args.out)
    known = [{name: row[name] for name in KEYS} for row in done]
    shown = []
    for k in range(args.folds):
        for data in sets:
            fits = ["trained"] + ["NUTS"] * (k < args.nuts_folds)
            keys = [key_of(data, fit, k, args) for fit in fits]
            if all(key in known for key in keys):
                shown += [done[known.index(key)] for key in keys]
                continue
            for found in run_fold(data, k, args):
                row = {n: f"{v:.6g}" if isinstance(v, float) else v for n, v in found.items()}
                row |= key_of(data, found["fit"], k, args)
                append(args.out, row, KEYS + VALUES)
                shown.append(row)
                print(
                    f"{data.name} fold {k} {row['fit']}: RMSE {row['rmse']}, NLPD {row['nlpd']}, "
                    f"coverage {row['coverage']}, {row['seconds']} s",
                    file=sys.stderr,
                )
    print_table(shown, args.points)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--data", help="folder with NAME.npz files")
    add("--sets", help="comma-separated names; default: every set of the table that is there")
    add("--folds", type=int, default=3)
    add("--nuts-folds", type=int, default=1, help="so many of the folds are sampled too")
    add("--points", type=int, default=512)
    add("--epochs", type=int, default=50)
    add("--validation", type=float, default=0.1, help="share of training rows that stop it early")
    add("--noise", default="0.001", help='variance while points are trained, or "learned"')
    add("--objective", choices=["exact", "pseudo"], default="exact")
    add("--draws", type=int, default=300, help="tuning steps and draws of each of 2 chains")
    add("--cores", type=int, default=2)
    add("--out", help="CSV of results by fold, written as they come; folds in it are not run again")
    add("--quick", action="store_true", help="a simulated set only, in about two minutes")
    add("--seed", type=int, default=0)
    add("--no-progress", dest="progress", action="store_false")
    return parser.parse_args()


if __name__ == "__main__":
    main()
