"""UCI regression: a posterior by importance sampling, beside the best published figures of exact GPs.

    python tests/benchmarks/bench_uci.py --data DIR [--sets elevators,bike,...] [--kernels Matern32,ExpQuad]
        [--folds N] [--cores N]

`VecchiaMarginal` as it comes, one lengthscale for each input, LogNormal(log sqrt(d), 1), HalfNormal(2)
and HalfNormal(.5) for eta and sigma; inputs and targets standardised on the training rows, 90% of all. RMSE
and negative log predictive density of the standardised targets of the other rows, and coverage of 90%
intervals; of more than one fold their means. Seconds are those of the last fold: model and posterior, and
predictions from 50 draws.

Published RMSEs are at 90% of the rows too: conjugate gradients (Wang et al. 2019, "Exact Gaussian processes
on a million data points") and stochastic dual descent (Lin et al. 2024), the lower where both report.
"""

from functools import partial

import numpy as np
from _common import arguments, table
from _data import find, load
from bench_importance import timed

PUBLISHED = {
    "elevators": 0.35,
    "bike": 0.04,
    "kin40k": 0.099,
    "protein": 0.50,
    "keggdirected": 0.08,
}
DRAWS = 50  # that predictions average over


def fitted(pm, sgp, kernel, fold, cores):
    """Draws, GP and model of a fold's training rows."""
    d = fold.X.shape[1]
    with pm.Model() as model:
        ell = pm.LogNormal("ell", np.log(np.sqrt(d)), 1.0, shape=d)
        eta, sigma = pm.HalfNormal("eta", 2.0), pm.HalfNormal("sigma", 0.5)
        gp = sgp.VecchiaMarginal(cov_func=eta**2 * getattr(pm.gp.cov, kernel)(d, ls=ell))
        gp.marginal_likelihood("y", X=fold.X, y=fold.y, sigma=sigma, progressbar=False)
        idata = sgp.sample_importance(random_seed=1, progressbar=False, cores=cores)
    return idata, gp, model


def predicted(gp, model, idata, X):
    """Mean and variance of new observations."""
    found = gp.predict_posterior(
        X, idata, num_samples=DRAWS, pred_noise=True, progressbar=False, random_seed=1, model=model
    )
    return found["mean"].values, found["sd"].values ** 2


def lines(pm, sgp, name, kernels, args):
    """A line of the table for each kernel."""
    data = load(find(args.data, name))
    for kernel in kernels:
        scores = []
        for k in range(args.folds):
            fold = data.fold(k)
            (idata, *fit), posterior = timed(partial(fitted, pm, sgp, kernel, fold, args.cores))
            moments, prediction = timed(partial(predicted, *fit, idata, fold.X_test))
            scores.append([*fold.standard_score(*moments).values()])
        rmse, nlpd, coverage = np.mean(scores, axis=0)
        a = idata["posterior"].attrs
        yield [
            name, f"{len(fold.y)} x {fold.X.shape[1]}", kernel, f"{rmse:.3f}", PUBLISHED[name],
            f"{nlpd:.3f}", f"{coverage:.0%}", round(posterior), round(prediction), f"{a['khat']:.2f}",
            round(a["ess"]),
        ]  # fmt: skip


def main():
    """Print the table."""
    parser = arguments(__doc__, data=True)
    parser.add_argument("--sets", default=",".join(PUBLISHED))
    parser.add_argument("--kernels", default="Matern32,ExpQuad")
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument("--cores", type=int, help="processes; one where densities are fast")
    args = parser.parse_args()
    import pymc as pm

    import pymc_scalable_gp as sgp

    kernels = args.kernels.split(",")
    found = [line for name in args.sets.split(",") for line in lines(pm, sgp, name, kernels, args)]
    header = [
        "set", "training rows x inputs", "kernel", "RMSE", "published", "NLPD", "coverage",
        "posterior s", "predictions s", "k-hat", "ESS",
    ]  # fmt: skip
    table(f"UCI regression, mean of {args.folds} folds", header, found)


if __name__ == "__main__":
    main()
