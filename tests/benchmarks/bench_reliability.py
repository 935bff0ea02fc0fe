"""Whether importance sampling can be relied on: seeds, evidence, many parameters, many rows, a cluster.

    python tests/benchmarks/bench_reliability.py [--data DIR] [--parts evidence,dask,seeds,doubled,large]
        [--seeds N] [--draws N] [--rows N] [--cores N]

"evidence": the log evidence of a GP with two free parameters by quadrature on a grid, and of one with five
by `pm.sample_smc`, beside three seeds of importance sampling. "dask": seconds of densities on the workers
of a local cluster, two over one. "seeds": elevators (VIF 100/30, 20 parameters), posterior means and
evidence of several seeds, which share nothing, with an effective sample size of --draws asked for.
"doubled": elevators with two lengthscales for each input, 36 parameters. "large": simulated rows in three
inputs (Matern 5/2, VIF 200/30, five hyperparameters, all known), in one process each, whose largest memory
is shown. Seconds include compilation where machine code is already on disk.
"""

import time

import numpy as np
from _common import arguments, peak_memory, regression, table
from bench_importance import logs, model_of, row, timed
from scipy.fft import next_fast_len
from scipy.ndimage import map_coordinates
from scipy.special import logsumexp

QUIET = {"progressbar": False}


def evidence(pm, sgp, _):
    """Lines: log evidences by quadrature or sequential Monte Carlo, and by weights."""
    rng = np.random.default_rng(1)
    found = []
    for name, n, free in (("2 parameters, quadrature", 60, 2), ("5 parameters, SMC", 150, 5)):
        X = rng.uniform(0.0, 10.0, (n, 1 if free == 2 else 3))
        y = np.sin(X[:, 0]) + 0.2 * rng.standard_normal(n)
        with pm.Model() as model:
            ell = pm.LogNormal("ell", 0.0, 1.0, shape=X.shape[1])
            sigma = pm.LogNormal("sigma", -1.0, 1.0)
            eta = 1.0 if free == 2 else pm.LogNormal("eta", 0.0, 0.5)
            gp = sgp.ExactMarginal(cov_func=eta**2 * pm.gp.cov.Matern52(X.shape[1], ls=ell))
            gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        if free == 2:
            exact, error = by_quadrature(model), 0.0
        else:
            exact, error = by_smc(pm, model)
        for seed in range(3):
            attrs = sgp.sample_importance(model=model, random_seed=seed, **QUIET)["posterior"].attrs
            ours, se = attrs["log_evidence"], attrs["log_evidence_se"]
            off = (ours - exact) / np.hypot(se, error)
            shown = [f"{each:.2f}" for each in (exact, error, ours, se)]
            found.append([name, *shown, f"{off:+.1f}"])
    return found


def by_quadrature(model):
    """Log of the integral of the density over the unconstrained parameters, by a fine grid."""
    logp = model.compile_logp()
    names = [v.name for v in model.value_vars]
    axes = [np.linspace(-4.0, 4.0, 161), np.linspace(-6.0, 2.0, 161)]
    values = [[logp({names[0]: np.array([a]), names[1]: b}) for b in axes[1]] for a in axes[0]]
    steps = [axis[1] - axis[0] for axis in axes]
    return float(logsumexp(values) + np.log(steps).sum())


def by_smc(pm, model):
    """Log evidence by sequential Monte Carlo, four runs: mean and standard error."""
    with model:
        idata = pm.sample_smc(2000, chains=4, cores=1, random_seed=1, **QUIET)
    last = [
        np.asarray(each, float)[np.isfinite(np.asarray(each, float))][-1]
        for each in idata["sample_stats"]["log_marginal_likelihood"].values
    ]
    return float(np.mean(last)), float(np.std(last, ddof=1) / np.sqrt(len(last)))


def cluster(pm, sgp, args):
    """Lines: seconds of densities of 15 000 rows by workers of a local cluster."""
    from distributed import Client, LocalCluster

    X, y, _ = regression(args.data, 15_000)
    model, _ = model_of(pm, sgp, X, y)
    found = []
    for workers in (1, 2):
        with (
            LocalCluster(workers, threads_per_worker=1, dashboard_address=None) as local,
            Client(local) as client,
        ):
            sgp.sample_importance(  # compiles on each worker
                model=model, client=client, random_seed=1, max_evaluations=256, **QUIET
            )
            idata, seconds = timed(
                lambda client=client: sgp.sample_importance(
                    10**6, model=model, client=client, random_seed=1, max_evaluations=800, **QUIET
                )
            )
        phases = idata["posterior"].attrs["seconds"]
        found.append([workers, round(seconds), phases])
    return found


def seeds(pm, sgp, args):
    """Lines: elevators with several seeds, and how far their means and evidences lie apart."""
    X, y, _ = regression(args.data, 15_000, "elevators")
    found, means, evidences = [], [], []
    for seed in range(args.seeds):
        (idata, seconds) = timed(
            lambda seed=seed: sgp.sample_importance(
                args.draws, model=model_of(pm, sgp, X, y, points=100)[0], cores=args.cores,
                random_seed=seed, **QUIET,
            )
        )  # fmt: skip
        draws, attrs = logs(idata), idata["posterior"].attrs
        means.append((draws.mean(axis=0), draws.std(axis=0)))
        evidences.append((attrs["log_evidence"], attrs["log_evidence_se"]))
        shown = [f"{each:.2f}" for each in evidences[-1]]
        found.append(row(f"elevators, {len(y)} rows, seed {seed}", idata, seconds, *shown))
    centre, sd = (np.mean(each, axis=0) for each in zip(*means, strict=True))
    shift = [np.abs((mean - centre) / sd).max() for mean, _ in means]
    value, error = np.array(evidences).T
    off = np.abs(value - value.mean()) / error
    blank = [""] * 4
    found.append(["farthest mean from the seeds' average, sds", *blank, f"{max(shift):.2f}", ""])
    found.append(["farthest evidence, standard errors", *blank, f"{off.max():.1f}", ""])
    return found


def doubled(pm, sgp, args):
    """Lines: two kernels, each with a lengthscale for every input, on elevators."""
    X, y, _ = regression(args.data, 15_000, "elevators")
    d = X.shape[1]
    with pm.Model() as model:
        ell = [pm.LogNormal(f"ell{i}", np.log(np.sqrt(d)) + i, 1.0, shape=d) for i in (0, 1)]
        eta, sigma = pm.HalfNormal("eta", 2.0, shape=2), pm.HalfNormal("sigma", 0.5)
        cov = sum(eta[i] ** 2 * pm.gp.cov.Matern52(d, ls=ell[i]) for i in (0, 1))
        gp = sgp.VecchiaMarginal(cov_func=cov, n_inducing=100, neighbors=30)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, progressbar=False)
    idata, seconds = timed(
        lambda: sgp.sample_importance(model=model, cores=args.cores, random_seed=1, **QUIET)
    )
    attrs = idata["posterior"].attrs
    shown = [f"{attrs[name]:.2f}" for name in ("log_evidence", "log_evidence_se")]
    return [row(f"elevators, two kernels, {2 * d + 3} parameters", idata, seconds, *shown)]


def simulated(n, rng):
    """Inputs in [0, 1]^3, noisy values of a Matern 5/2 process, and the truth.

    The process is drawn on a grid of 16 points per lengthscale, by the Fourier transform on a torus whose
    far side is five lengthscales off, and interpolated by splines.
    """
    ell, eta, sigma = np.array([0.15, 0.25, 0.4]), 1.0, 0.3
    period = 1.0 + 5.0 * ell
    shape = [
        next_fast_len(int(np.ceil(16.0 * long / each))) for long, each in zip(period, ell, strict=True)
    ]
    waves = [
        2.0 * np.pi * each * np.fft.fftfreq(count, long / count)
        for each, count, long in zip(ell, shape, period, strict=True)
    ]
    spectrum = (5.0 + sum(wave**2 for wave in np.meshgrid(*waves, indexing="ij", sparse=True))) ** -4
    root = np.sqrt(spectrum / spectrum.mean())
    field = np.fft.ifftn(root * np.fft.fftn(rng.standard_normal(shape))).real
    X = rng.uniform(size=(n, 3))
    f = map_coordinates(field, (X * shape / period).T, order=3, mode="grid-wrap")
    return X, eta * f + sigma * rng.standard_normal(n), np.log([*ell, eta, sigma])


def large(pm, sgp, args):
    """Lines: many rows, and how far the truth lies from the posterior."""
    rng = np.random.default_rng(1)
    X, y, truth = simulated(args.rows, rng)
    begin = time.perf_counter()
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 1, shape=3)
        eta, sigma = pm.HalfNormal("eta", 2.0), pm.HalfNormal("sigma", 0.5)
        gp = sgp.VecchiaMarginal(
            cov_func=eta**2 * pm.gp.cov.Matern52(3, ls=ell), n_inducing=200, neighbors=30
        )
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, progressbar=False)
    idata = sgp.sample_importance(200, model=model, cores=args.cores, random_seed=1, **QUIET)
    taken = time.perf_counter() - begin
    draws = logs(idata)
    off = np.abs(draws.mean(axis=0) - truth) / draws.std(axis=0)
    gib = f"{peak_memory() / 2**30:.1f}"
    return [row(f"{args.rows} rows in three inputs", idata, taken, f"{off.max():.1f}", gib)]


PARTS = {
    "evidence": (
        evidence,
        "Log evidence, and importance sampling's with its standard error",
        ["model", "reference", "se", "weights", "se", "apart, se"],
    ),
    "dask": (cluster, "800 densities on a cluster", ["workers", "s", "by phase"]),
    "seeds": (
        seeds,
        "Seeds of one posterior",
        ["posterior of", "s", "k-hat", "ESS", "densities + gradients", "log evidence", "se"],
    ),
    "doubled": (
        doubled,
        "Many parameters",
        ["posterior of", "s", "k-hat", "ESS", "densities + gradients", "log evidence", "se"],
    ),
    "large": (
        large,
        "Many rows",
        [
            "posterior of", "s", "k-hat", "ESS", "densities + gradients", "truth off, sds",
            "largest memory, GiB",
        ],
    ),
}  # fmt: skip


def main():
    """Print the tables."""
    parser = arguments(__doc__, data=True)
    parser.add_argument("--parts", default="evidence,dask,seeds,doubled,large")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=400, help="of each seed")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--cores", type=int, help="threads, by default as many as processors")
    args = parser.parse_args()
    import pymc as pm

    import pymc_scalable_gp as sgp

    for part in args.parts.split(","):
        function, title, header = PARTS[part]
        table(title, header, function(pm, sgp, args))


if __name__ == "__main__":
    main()
