"""NUTS on all hyperparameters of a near-exact GP of tens of thousands of rows.

    python examples/paper_tables/vif_nuts.py --data DIR            # kin40k, 36 000 rows to train on
    python examples/paper_tables/vif_nuts.py --quick               # a simulated set

First the best point, as `vif.py` finds it. Its curvature, by differences of gradients, gives NUTS the mass
matrix: the posterior is close to normal, and strides are long from the start. Set OPENBLAS_NUM_THREADS=1:
each chain is a process of its own.
"""

import argparse
import time

import numpy as np
import pymc as pm
from _data import find, load, simulate
from vif import best_point, class_of, first_point, kernel_of
from vif_posterior import thinned

STEP = 1e-3  # of a log parameter, in the differences of gradients


def curvature(model, point):
    """Covariance matrix of the normal approximation at a mode, unconstrained; seconds per gradient."""
    start = model.initial_point()
    values = {f"{name}_log__": np.log(point[name]) for name in ("ell", "eta", "sigma")}
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    mode = np.concatenate([np.ravel(values[name]) for name in start])
    function(mode)  # compiles
    clock, rows = time.perf_counter(), []
    for step in STEP * np.eye(len(mode)):
        up, down = (function(mode + sign * step)[1].copy() for sign in (1.0, -1.0))
        rows.append((down - up) / (2.0 * STEP))
    seconds = (time.perf_counter() - clock) / (2 * len(mode))
    precision = np.array(rows)
    values, vectors = np.linalg.eigh(0.5 * (precision + precision.T))
    if values.min() <= 0.0:
        raise ValueError("The point is no maximum of the posterior: take more steps to it.")
    return (vectors / values) @ vectors.T, seconds


def run(name, data, args):
    """Fit, sample and predict; a report of it."""
    fold, marks = data.fold(0), [time.perf_counter()]
    n, d = fold.X.shape
    start = first_point(fold, args.kernel)
    with pm.Model() as model:
        cov, sigma = kernel_of(args.kernel, d)
        gp = class_of("VIF", cov, args)
        gp.build(fold.X, point=start)
        gp.marginal_likelihood("y", X=fold.X, y=fold.y, sigma=sigma)
        point = best_point(gp, start, args.steps)
        marks.append(time.perf_counter())
        mass, gradient = curvature(model, point)
        marks.append(time.perf_counter())
        idata = pm.sample(
            args.draws, tune=args.draws, chains=2, cores=2, random_seed=1, initvals=point,
            step=pm.NUTS(scaling=mass, is_cov=True, target_accept=args.accept), progressbar=False,
        )  # fmt: skip
        marks.append(time.perf_counter())
        mixed = gp.predict_posterior(
            fold.X_test, idata, num_samples=args.predicted, pred_noise=True, random_seed=1
        )
        marks.append(time.perf_counter())
        moments = {"best point": gp.predict(fold.X_test, point, diag=True, pred_noise=True)}
    moments["posterior"] = mixed["mean"].values, mixed["sd"].values ** 2
    print(
        f"{name}: {n} rows, {d} inputs, {args.kernel}, {args.inducing} inducing points, "
        f"{args.neighbors} neighbors, {args.pred_neighbors} of new rows, blocks of {args.block}; "
        f"a gradient takes {gradient:.2f} s"
    )
    report(idata, np.diff(marks), args.draws)
    for label, (mean, var) in moments.items():
        found = fold.standard_score(mean, var)
        print(
            f"{label}: RMSE {found['rmse']:.4f}, NLPD {found['nlpd']:.3f}, "
            f"90% coverage {found['coverage']:.1%}"
        )


def report(idata, seconds, draws):
    """Seconds of each part, and whether the draws can be relied on."""
    fitted, curved, sampled, predicted = seconds
    print(
        f"best point {fitted:.0f} s, its curvature {curved:.0f} s, "
        f"NUTS 2 x ({draws} + {draws}) {sampled:.0f} s, prediction {predicted:.0f} s"
    )
    stats = idata["sample_stats"]
    _, rhat, ess = thinned(idata, 1)
    print(
        f"leapfrog steps per draw {float(stats['n_steps'].mean()):.1f}, "
        f"acceptance {float(stats['acceptance_rate'].mean()):.2f}\n"
        f"R-hat at most {rhat:.3f}, ESS at least {ess:.0f}, {int(stats['diverging'].sum())} divergences"
    )


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=".", help="folder of the .npz files")
    parser.add_argument("--set", default="kin40k")
    parser.add_argument("--kernel", default="ExpQuad")
    parser.add_argument("--inducing", type=int, default=128)
    parser.add_argument("--neighbors", type=int, default=30)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--pred-neighbors", type=int, default=120, help="of a new row")
    parser.add_argument("--steps", type=int, nargs="+", default=[40, 40])
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--accept", type=float, default=0.8, help="target acceptance rate")
    parser.add_argument("--predicted", type=int, default=20, help="draws that predict")
    parser.add_argument("--rows", type=int, help="at most so many rows of the set")
    parser.add_argument("--quick", action="store_true", help="a simulated set")
    args = parser.parse_args()
    if args.quick:
        args.inducing, args.neighbors = 20, 20
        run("simulated", simulate(), args)
        return
    path = find(args.data, args.set)
    if path is None:
        print(f"{args.set}: no file under {args.data}, skipped")
        return
    run(args.set, load(path).head(args.rows), args)


if __name__ == "__main__":
    main()
