"""As many rows as there are: the kernel is fixed, and the weights of its eigenfunctions are free.

python examples/millions.py [--data FILE] [--rows N] [--rank R] [--out FILE.png] [--seed S]

An exact GP on a thousand rows gives the kernel; then all rows inform the weights of the eigenfunctions and
the noise, at a cost that does not grow with the rows once they have been read. Without --data the script
simulates a robot arm with eight joints. FILE is a CSV file with the target in its last column (a header
line is optional), or an NPZ file with the arrays X (n, d) and y (n,).
"""

import arviz as az
import numpy as np
import pymc as pm
from pictures import predict, show, with_noise
from problems import NOISE, arguments, load, spread, standardize
from reporting import Steps, chains, heading, line

import pymc_scalable_gp as sgp

SUBSET = 1000  # rows that an exact Gaussian process can afford


def fit_exact(X, y, Xnew):
    """Exact GP on a few rows: best point of the hyperparameters, and predictions of new observations."""
    d = X.shape[1]
    with pm.Model():
        ell = pm.LogNormal("ell", 1.0, 1.0, shape=d)
        cov = pm.HalfNormal("eta", 2.0) ** 2 * pm.gp.cov.ExpQuad(d, ls=ell)
        sigma = pm.HalfNormal("sigma", 1.0)
        gp = sgp.ExactMarginal(cov_func=cov)
        theta = sgp.subset_map(gp, X, y, sigma, max_rows=len(X))
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        mean, var = gp.predict(Xnew, theta, diag=True, pred_noise=True)
    return theta, mean, np.sqrt(var)


def fit_grief(X, y, theta, rank, seed):
    """Posterior of the eigenfunctions' weights and of the noise, with the kernel fixed at theta."""
    d = X.shape[1]
    with pm.Model() as model:
        cov = float(theta["eta"]) ** 2 * pm.gp.cov.ExpQuad(d, ls=theta["ell"])
        gp = sgp.GriefGP(cov_func=cov, grid=10, rank=rank, rotate=True)
        w = sgp.weights_prior("w", gp.build(X))
        sigma = pm.HalfNormal("sigma", 1.0, initval=theta["sigma"])
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, weights=w)
        idata = pm.sample(1000, tune=1000, chains=4, random_seed=seed)
    return gp, model, idata


def report(idata):
    """ArviZ summary of the noise, and whether all chains can be relied on."""
    print(az.summary(idata, var_names=["sigma"], kind="all").to_string())
    chains(idata)


def main():
    """Run all steps."""
    args = arguments(
        __doc__,
        rows=(None, "rows taken, a tenth of which is held out (all; simulated: 40000)"),
        rank=(1000, "number of eigenfunctions (1000)"),
    )
    rng = np.random.default_rng(args.seed)
    say = Steps()

    say("1/5 Data: " + (f"reading {args.data}" if args.data else "simulating an 8-joint robot arm"))
    problem, train, test = load(args, rng, joints=8, rows=40_000, share=10)
    X, Xtest = standardize(problem.X[train], problem.X[test])
    (y,) = standardize(problem.y[train])
    center, scale = problem.y[train].mean(), float(spread(problem.y[train]))
    say(f"    {len(train)} rows to learn from, {len(test)} held out, {X.shape[1]} inputs")

    few = min(SUBSET, len(train))  # the rows are in random order
    say(f"2/5 Exact GP on {few} rows (ExactMarginal): start values and a yardstick")
    theta, exact_mean, exact_sd = fit_exact(X[:few], y[:few], Xtest)
    exact_seconds = say.lap()
    print(f"    lengthscales {np.round(theta['ell'], 2)}")
    print(f"    eta {theta['eta']:.3g}, sigma {theta['sigma']:.3g} (target standardised)")

    say(f"3/5 GriefGP on all {len(train)} rows: kernel fixed there, weights and noise sampled")
    gp, model, idata = fit_grief(X, y, theta, args.rank, args.seed)
    report(idata)

    say(f"4/5 Predictions for the {len(test)} held-out rows, averaged over all draws")
    mean, sd = predict(gp, model, idata, Xtest, draws=None)
    mean, sds = center + scale * mean, (scale * with_noise(sd, idata), scale * sd)
    seconds = say.lap()

    say("5/5 Picture")
    show(args.out, (gp, model, idata), problem, train, test, theta, (mean, sds[0]), rng)

    exact = (center + scale * exact_mean, scale * exact_sd)
    heading()
    line("GriefGP, posterior", problem.y[test], mean, sds[0], len(train), seconds)
    line("exact GP, best point", problem.y[test], *exact, few, exact_seconds)
    if problem.truth is not None:
        line("GriefGP, true function", problem.truth(problem.X[test]), mean, sds[1])
        print(f"{'noise of the simulation':24}{'':8}{NOISE:12.4g}")
    say(f"done; the picture is in {args.out}")


if __name__ == "__main__":
    main()
