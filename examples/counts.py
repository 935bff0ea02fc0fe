"""Counts at places in a plane: a latent Gaussian process under a Poisson likelihood.

python examples/counts.py [--rows N] [--points M] [--draws N] [--out FILE.png]

Simulates visits at a rate whose logarithm is drawn from a Gaussian process, times an exposure. An exact
Gaussian process on the logarithm of the observed rate says where to choose inducing points; NUTS then
samples the kernel's parameters and the function under the Poisson likelihood. Prints how far the draws
and the intervals can be relied on, and says so where they cannot.
"""

import argparse
import time

import arviz as az
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from reporting import chains, coverage

import pymc_scalable_gp as sgp


def draw_log_rate(rng, lengthscale=0.8, scale=0.8, waves=2000):
    """A log rate drawn from the model itself, as a sum of random waves: 90% intervals should cover it."""
    frequencies = rng.standard_normal((waves, 2)) / lengthscale
    phases = rng.uniform(0.0, 2.0 * np.pi, waves)
    size = scale * np.sqrt(2.0 / waves)
    return lambda X: 0.5 + size * np.cos(X @ frequencies.T + phases).sum(axis=1)


def simulate(n, log_rate, rng):
    """Places (n, 2), exposures (n,) and counts (n,)."""
    X = rng.uniform(-2.0, 2.0, (n, 2))
    exposure = rng.gamma(4.0, 0.5, n)
    return X, exposure, rng.poisson(exposure * np.exp(log_rate(X)))


def covariance():
    """Kernel with a free lengthscale for each coordinate and a free scale."""
    ell = pm.InverseGamma("ell", 5, 5, shape=2)
    eta = pm.HalfNormal("eta", 2)
    return eta**2 * pm.gp.cov.ExpQuad(2, ls=ell)


def stand_in(X, exposure, counts):
    """Hyperparameters at which an exact GP explains the logarithm of the smoothed rate best."""
    values = np.log((counts + 0.5) / (exposure + 0.5))
    with pm.Model():
        gp = pm.gp.Marginal(cov_func=covariance())
        sd = pm.HalfNormal("sd", 1)
        return sgp.subset_map(
            gp, X, values - values.mean(), sd, max_rows=500, random_seed=0, progressbar=False
        )


def fit(X, exposure, counts, points, draws):
    """The GP, its model, and draws from the posterior of its parameters and coefficients."""
    start = stand_in(X, exposure, counts)
    with pm.Model() as model:
        center = pm.Normal("center", 0, 2)
        mean = pm.gp.mean.Constant(center)
        # A smooth kernel: the points hold it, and predictions carry what little they miss. For a rough
        # one give neighbors=15, which adds a latent variable per row.
        gp = sgp.VecchiaLatent(mean_func=mean, cov_func=covariance(), n_inducing=points, neighbors=None)
        gp.build(X, point=start)
        f = gp.prior("f", X=X)
        pm.Poisson("visits", exposure * pm.math.exp(f), observed=counts)
        idata = pm.sample(
            draws, tune=1000, chains=2, cores=2, random_seed=1, target_accept=0.99, nuts_sampler="nutpie",
            nuts={"adaptation": "low_rank"}, initvals={name: start[name] for name in ("ell", "eta")},
            compute_convergence_checks=False,
        )  # fmt: skip
    return gp, model, idata


def deviance(counts, expected):
    """Mean Poisson deviance."""
    term = np.where(counts > 0, counts * np.log(np.maximum(counts, 1) / expected), 0.0)
    return 2.0 * np.mean(term - (counts - expected))


def picture(out, truth, mean, sd):
    """Posterior of the log rate against the truth at held-out places."""
    fig, ax = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
    ax.errorbar(truth, mean, 1.645 * sd, fmt=".", ms=3, lw=0.4, alpha=0.5, label="mean, 90% interval")
    ax.plot(ax.get_xlim(), ax.get_xlim(), "k:", lw=1)
    ax.set(xlabel="true log rate", ylabel="posterior of f", title="held-out places")
    ax.legend(frameon=False)
    fig.savefig(out, dpi=110)
    print(f"wrote {out}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--draws", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="counts.png")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    log_rate = draw_log_rate(rng)
    X, exposure, counts = simulate(args.rows, log_rate, rng)
    Xnew, new_exposure, new_counts = simulate(500, log_rate, rng)
    clock, cpu = time.perf_counter(), time.process_time()
    gp, model, idata = fit(X, exposure, counts, args.points, args.draws)
    print(az.summary(idata, var_names=["ell", "eta", "center"]))
    pred = gp.predict_posterior(Xnew, idata, num_samples=200, random_seed=0, model=model, progressbar=False)
    mean, sd = pred["mean"].values, pred["sd"].values
    truth = log_rate(Xnew)
    constant = new_exposure * counts.sum() / exposure.sum()
    print(
        f"held-out deviance {deviance(new_counts, new_exposure * np.exp(mean + 0.5 * sd**2)):.3f}; of "
        f"the constant rate {deviance(new_counts, constant):.3f}; of the truth "
        f"{deviance(new_counts, new_exposure * np.exp(truth)):.3f}; "
        f"{time.perf_counter() - clock:.0f} s, {time.process_time() - cpu:.0f} of CPU time"
    )
    chains(idata, ("ell", "eta", "center", "f"))
    coverage(truth - mean, sd, "the true log rate")
    picture(args.out, truth, mean, sd)


if __name__ == "__main__":
    main()
