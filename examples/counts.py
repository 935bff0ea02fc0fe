"""Counts in six inputs: a latent SoftKI Gaussian process under a Poisson likelihood.

python examples/counts.py [--rows N] [--points M] [--out FILE.png]

Simulates visits as a smooth function of six covariates times an exposure. The points are trained
on a Gaussian stand-in, the logarithm of the rate; NUTS then samples the kernel's parameters and the
function under the Poisson likelihood. Takes about two minutes.
"""

import argparse
import time

import arviz as az
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_scalable_gp as sgp

D = 6


def log_rate(X):
    """The true logarithm of the rate: interactions of four inputs; the other two do not matter."""
    return 0.5 + np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + 0.6 * np.tanh(X[:, 2] * X[:, 3])


def simulate(n, rng):
    """Covariates (n, D), exposures (n,) and counts (n,)."""
    X = rng.uniform(-2.0, 2.0, (n, D))
    exposure = rng.gamma(4.0, 0.5, n)
    return X, exposure, rng.poisson(exposure * np.exp(log_rate(X)))


def stand_in(counts, exposure):
    """Logarithm of a smoothed rate, standardised."""
    values = np.log((counts + 0.5) / (exposure + 0.5))
    return (values - values.mean()) / values.std()


def deviance(counts, expected):
    """Mean Poisson deviance."""
    term = np.where(counts > 0, counts * np.log(np.maximum(counts, 1) / expected), 0.0)
    return 2.0 * np.mean(term - (counts - expected))


def fit(X, exposure, counts, points):
    """Posterior of the latent function's parameters and coefficients; the GP and its model."""
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 5, 10, shape=D)
        eta = pm.HalfNormal("eta", 3)
        center = pm.Normal("center", 0, 2)
        cov = eta**2 * pm.gp.cov.Matern52(D, ls=ell)
        start = sgp.fit_inducing(
            sgp.SoftKILatent(cov_func=cov, inducing=points), X, stand_in(counts, exposure),
            pm.HalfNormal("stand_in_sd", 1), batch_size=256, validation=0.2, random_seed=0,
        )  # fmt: skip
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 5, 10, shape=D)
        eta = pm.HalfNormal("eta", 3)
        center = pm.Normal("center", 0, 2)
        mean = pm.gp.mean.Constant(center)
        cov = eta**2 * pm.gp.cov.Matern52(D, ls=ell)
        gp = sgp.SoftKILatent(mean_func=mean, cov_func=cov, inducing=start.Z)
        f = gp.prior("f", X=X)
        pm.Poisson("visits", exposure * pm.math.exp(f), observed=counts)
        start = {name: start.point[name] for name in ("ell", "eta")}
        idata = pm.sample(400, tune=400, chains=2, random_seed=1, initvals=start)
    return gp, model, idata


def picture(out, truth, mean, sd):
    """Posterior of the log rate against the truth at held-out rows."""
    fig, ax = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
    ax.errorbar(
        truth, mean, 1.645 * sd, fmt=".", ms=3, lw=0.4, alpha=0.5, label="mean, 90% interval"
    )
    ax.plot(ax.get_xlim(), ax.get_xlim(), "k:", lw=1)
    ax.set(xlabel="true log rate", ylabel="posterior of f", title="held-out rows")
    ax.legend(frameon=False)
    fig.savefig(out, dpi=110)
    print(f"wrote {out}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--out", default="counts.png")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    X, exposure, counts = simulate(args.rows, rng)
    Xnew, new_exposure, new_counts = simulate(500, rng)
    clock = time.perf_counter()
    gp, model, idata = fit(X, exposure, counts, args.points)
    print(az.summary(idata, var_names=["ell", "eta", "center"]))
    print(f"divergences: {int(idata['sample_stats']['diverging'].sum())}")
    pred = gp.predict_posterior(Xnew, idata, num_samples=200, random_seed=0, model=model)
    mean, sd = pred["mean"].values, pred["sd"].values
    truth = log_rate(Xnew)
    expected = new_exposure * np.exp(mean + 0.5 * sd**2)
    constant = new_exposure * counts.sum() / exposure.sum()
    drawn = rng.poisson(new_exposure * np.exp(mean + sd * rng.standard_normal((2000, len(mean)))))
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    held = np.mean((low <= new_counts) & (new_counts <= high))
    covered = np.mean(np.abs(truth - mean) < 1.645 * sd)
    print(
        f"held-out deviance {deviance(new_counts, expected):.3f}; of the constant rate "
        f"{deviance(new_counts, constant):.3f}; of the truth "
        f"{deviance(new_counts, new_exposure * np.exp(truth)):.3f}\n"
        f"counts inside their 90% interval: {held:.0%}; true log rate inside its: {covered:.0%}; "
        f"{time.perf_counter() - clock:.0f} s"
    )
    picture(args.out, truth, mean, sd)


if __name__ == "__main__":
    main()
