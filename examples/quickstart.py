"""A first model: the posterior of a Gaussian process's parameters, predictions and a picture.

python examples/quickstart.py [--data FILE] [--rows N] [--neighbors K] [--out FILE.png] [--seed S]

Without --data the script simulates a robot arm with four joints. FILE is a CSV file with the target
in its last column (a header line is optional), or an NPZ file with the arrays X (n, d) and y (n,). Of a
larger file --rows rows are taken at random; examples/millions.py takes all.
"""

import arviz as az
import numpy as np
import pymc as pm
from pictures import predict, show, with_noise
from problems import NOISE, arguments, load, spread, standardize
from reporting import Steps, heading, line, weights

import pymc_scalable_gp as sgp

SUBSET = 1000  # rows that an exact Gaussian process can afford


def kernel(d):
    """Kernel with a free lengthscale per input and a free scale, and a free noise, in a model context."""
    ell = pm.LogNormal("ell", 1.0, 1.0, shape=d)
    eta = pm.HalfNormal("eta", 2.0)
    return eta**2 * pm.gp.cov.ExpQuad(d, ls=ell), pm.HalfNormal("sigma", 1.0)


def fit_exact(X, y, Xnew):
    """Exact GP on a few rows: hyperparameters (MAP), and predictions with the noise and without."""
    with pm.Model():
        cov, sigma = kernel(X.shape[1])
        gp = sgp.ExactMarginal(cov_func=cov)
        theta = sgp.subset_map(gp, X, y, sigma, max_rows=len(X))
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        mean, var = gp.predict(Xnew, theta, diag=True)
    return theta, mean, np.sqrt(var + float(theta["sigma"]) ** 2), np.sqrt(var)


def fit(X, y, theta, neighbors, seed):
    """Posterior of all parameters of the kernel, and of the noise, by importance sampling from theta on."""
    with pm.Model() as model:
        cov, sigma = kernel(X.shape[1])
        gp = sgp.VecchiaMarginal(cov_func=cov, n_inducing=100, neighbors=neighbors)
        gp.build(X, point=theta)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        idata = sgp.sample_importance(start=theta, random_seed=seed)
    return gp, model, idata


def main():
    """Run all steps."""
    args = arguments(
        __doc__,
        rows=(3000, "rows taken, a third of which is held out (3000)"),
        neighbors=(30, "rows that each block of rows is given (30)"),
    )
    rng = np.random.default_rng(args.seed)
    say = Steps()

    say("1/5 Data: " + (f"reading {args.data}" if args.data else "simulating a 4-joint robot arm"))
    problem, train, test = load(args, rng, joints=4, rows=args.rows, share=3)
    X, Xtest = standardize(problem.X[train], problem.X[test])
    (y,) = standardize(problem.y[train])
    center, scale = problem.y[train].mean(), float(spread(problem.y[train]))
    say(f"    {len(train)} rows to learn from, {len(test)} held out, {X.shape[1]} inputs")

    few = min(SUBSET, len(train))  # the rows are in random order
    say(f"2/5 Exact GP on {few} rows (ExactMarginal): start values and a yardstick")
    theta, exact_mean, *exact_sds = fit_exact(X[:few], y[:few], Xtest)
    exact_seconds = say.lap()

    say(f"3/5 VecchiaMarginal on all {len(train)} rows: every parameter sampled")
    gp, model, idata = fit(X, y, theta, args.neighbors, args.seed)
    print(az.summary(idata, var_names=["ell", "eta", "sigma"]).to_string())
    weights(idata)

    say(f"4/5 Predictions for the {len(test)} held-out rows, averaged over draws")
    mean, sd = predict(gp, model, idata, Xtest)
    mean, sds = center + scale * mean, (scale * with_noise(sd, idata), scale * sd)
    seconds = say.lap()

    say("5/5 Picture")
    show(args.out, (gp, model, idata), problem, train, test, theta, (mean, sds[0]), rng)

    y_test, exact = problem.y[test], center + scale * exact_mean
    heading()
    line("VecchiaMarginal", y_test, mean, sds[0], len(train), seconds)
    line("exact GP, best point", y_test, exact, scale * exact_sds[0], few, exact_seconds)
    if problem.truth is not None:
        truth = problem.truth(problem.X[test])
        print("of the true function:")
        line("VecchiaMarginal", truth, mean, sds[1])
        line("exact GP, best point", truth, exact, scale * exact_sds[1])
        print(f"{'noise of the simulation':24}{'':8}{NOISE:12.4g}")
    say(f"done; the picture is in {args.out}")


if __name__ == "__main__":
    main()
