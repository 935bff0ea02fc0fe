"""Three data sets, this package and others: seconds from data to predictions, error and coverage.

    python tests/benchmarks/bench_peers.py [--data DIR] [--peers PYTHON] [--parts counts,kin40k,series]

* counts: 2000 Poisson counts in a plane, whose log rate is drawn from a squared-exponential GP. Error and
  coverage are those of the log rate at 500 other places.
* kin40k: fold 0 of the UCI set (DIR), 36 000 rows of 8 inputs. Of the standardised target at 4000 rows.
* series: 100 000 even times, a Matern 3/2 process over forty lengthscales and noise. Of the process at 500
  times in between.

Every fit has a process of its own, with empty compilation caches: two chains of a thread each, or as many
threads as the package takes. Compilation is counted, imports are not. PYTHON is one that has gpytorch,
gpboost, celerite2 and tinygp, or some of them. A fit that takes longer than --limit minutes is stopped, and
the table says so. ESS is the least of the hyperparameters' effective sample sizes; seconds count all.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _common import arguments, fresh_process, hand_back, table

POSTERIOR, POINT = "posterior", "best point"


# ---- data ------------------------------------------------------------------------------------------------


def counts(quick, folder):
    """Counts at places in a square."""
    from counts import draw_log_rate

    rng = np.random.default_rng(0)
    log_rate = draw_log_rate(rng)
    X, Xnew = rng.uniform(-2.0, 2.0, (300 if quick else 2000, 2)), rng.uniform(-2.0, 2.0, (500, 2))
    return {"X": X, "y": rng.poisson(np.exp(log_rate(X))), "Xnew": Xnew, "truth": log_rate(Xnew)}


def kin40k(quick, folder):
    """Rows of the UCI set."""
    from _data import find, load

    path = find(folder, "kin40k") if folder else None
    if path is None:
        return None
    fold = load(path).fold(0)
    n = 2000 if quick else len(fold.y)
    truth = (fold.y_test - fold.center) / fold.scale
    return {"X": fold.X[:n], "y": fold.y[:n], "Xnew": fold.X_test, "truth": truth}


def series(quick, folder):
    """A Matern 3/2 process and noise; every 201st time is held out."""
    rng = np.random.default_rng(1)
    n = 2000 if quick else 100_500
    x = np.linspace(0.0, 40.0, n)
    f = matern32(x, rng)
    y = f + 0.3 * rng.standard_normal(n)
    held = np.arange(100, n, 201)
    used = np.setdiff1d(np.arange(n), held)
    return {"X": x[used, None], "y": y[used], "Xnew": x[held, None], "truth": f[held]}


def matern32(x, rng, scale=1.0, lengthscale=1.0):
    """A path at even times: (f, f') is a Markov process of two states."""
    rate, step = np.sqrt(3.0) / lengthscale, x[1] - x[0]
    decay = np.exp(-rate * step)
    move = decay * np.array([[1.0 + rate * step, step], [-(rate**2) * step, 1.0 - rate * step]])
    stationary = scale**2 * np.diag([1.0, rate**2])
    root = np.linalg.cholesky(stationary - move @ stationary @ move.T)
    state = np.sqrt(stationary) @ rng.standard_normal(2)
    path = np.empty(len(x))
    for j, shock in enumerate(rng.standard_normal((len(x), 2)) @ root.T):
        path[j] = state[0]
        state = move @ state + shock
    return path


PARTS = {"counts": counts, "kin40k": kin40k, "series": series}


# ---- fits in this Python ---------------------------------------------------------------------------------


def kernel(d, name="ExpQuad", ard=False):
    """Scale and lengthscale with their priors, in the model context."""
    import pymc as pm

    ell = pm.InverseGamma("ell", 4, 4, shape=d) if ard else pm.InverseGamma("ell", 4, 4)
    return pm.HalfNormal("eta", 2.0) ** 2 * getattr(pm.gp.cov, name)(d, ls=ell)


def sample(draws, tune, low_rank=False, **options):
    """Two chains, and how well they did: R-hat, divergences, effective sample size."""
    import pymc as pm

    nuts = {"adaptation": "low_rank"} if low_rank else {}
    idata = pm.sample(
        draws, tune=tune, chains=2, cores=2, random_seed=1, nuts_sampler="nutpie", nuts=nuts,
        progressbar=False, compute_convergence_checks=False, **options,
    )  # fmt: skip
    rhat, ess = quality_of(idata)
    return idata, rhat, int(idata["sample_stats"]["diverging"].sum()), ess


def quality_of(idata):
    """Worst R-hat and effective sample size of the hyperparameters."""
    import arviz as az

    posterior = idata["posterior"].to_dataset()
    posterior = posterior[[v for v in ("ell", "eta", "sigma", "center") if v in posterior]]
    rhat = max(float(v.max()) for v in az.rhat(posterior).data_vars.values())
    return rhat, min(float(v.min()) for v in az.ess(posterior).data_vars.values())


def predictions(gp, model, idata, Xnew, noise=False):
    """Mean and sd over the draws."""
    found = gp.predict_posterior(
        Xnew, idata, num_samples=200, model=model, pred_noise=noise, random_seed=0, progressbar=False
    )
    return found["mean"].values, found["sd"].values


def latent(make):
    """NUTS on Poisson counts under a latent GP."""

    def fit(problem, quick):
        import pymc as pm

        with pm.Model() as model:
            gp = make(pm.gp.mean.Constant(pm.Normal("center", 0, 2)))
            f = gp.prior("f", X=problem["X"])
            pm.Poisson("y", pm.math.exp(f), observed=problem["y"])
            draws, tune = (100, 100) if quick else (500, 500)
            idata, *quality = sample(draws, tune, low_rank=True, target_accept=0.95)
            if hasattr(gp, "predict_posterior"):
                return *predictions(gp, model, idata, problem["Xnew"]), *quality
            return *by_conditional(gp, idata, problem["Xnew"]), *quality

    return fit


def integrated(make):
    """Importance sampling on Poisson counts, the function integrated out."""

    def fit(problem, quick):
        import pymc as pm

        import pymc_scalable_gp as sgp

        with pm.Model() as model:
            gp = make(pm.gp.mean.Constant(pm.Normal("center", 0, 2)))
            gp.marginal_likelihood(
                "y", X=problem["X"], y=problem["y"], progressbar=False,
                likelihood=lambda f: pm.Poisson.dist(mu=pm.math.exp(f)),
            )  # fmt: skip
            idata = sgp.sample_importance(cores=1, random_seed=1, progressbar=False)
        rhat, ess = quality_of(idata)
        return *predictions(gp, model, idata, problem["Xnew"]), rhat, 0, ess

    return fit


def by_conditional(gp, idata, Xnew):
    """Predictions of `pm.gp`, in the model context."""
    import pymc as pm

    gp.conditional("f_new", Xnew)
    f = pm.sample_posterior_predictive(idata, var_names=["f_new"], random_seed=0, progressbar=False)[
        "posterior_predictive"
    ]["f_new"]
    return f.values.mean(axis=(0, 1)), f.values.std(axis=(0, 1))


def vecchia_latent(mean):
    import pymc_scalable_gp as sgp

    cov = kernel(2)
    return sgp.VecchiaLatent(mean_func=mean, cov_func=cov, n_inducing=60, neighbors=None)


def vecchia_marginal(mean):
    import pymc_scalable_gp as sgp

    return sgp.VecchiaMarginal(mean_func=mean, cov_func=kernel(2), n_inducing=100, neighbors=15)


def grief_latent(mean):
    import pymc_scalable_gp as sgp

    return sgp.GriefGP(mean_func=mean, cov_func=kernel(2), rank=100)


def hsgp_latent(mean):
    import pymc as pm

    return pm.gp.HSGP(m=[15, 15], c=1.5, mean_func=mean, cov_func=kernel(2), parametrization="noncentered")


def vecchia_map(problem, quick):
    """A best point, and neighbours chosen again there."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    X, y = problem["X"], problem["y"]
    with pm.Model():
        cov, sigma = kernel(X.shape[1], ard=True), pm.HalfNormal("sigma", 1.0)
        gp = sgp.VecchiaMarginal(cov_func=cov, n_inducing=128, neighbors=60)
        start = sgp.subset_map(gp, X, y, sigma, random_seed=0, progressbar=False)
        gp.build(X, point=start)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        for again in (False, True):
            if again:
                gp.rebuild(start)
            start = pm.find_MAP(initvals=start, maxiter=30, progressbar=False)
        mean, var = gp.predict(problem["Xnew"], start, diag=True, pred_noise=True)
    return mean, np.sqrt(var), None, None


def softki_nuts(problem, quick):
    """Points by stochastic descent, then NUTS on sufficient statistics."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    X, y = problem["X"], problem["y"]
    with pm.Model() as model:
        cov, sigma = kernel(X.shape[1]), pm.HalfNormal("sigma", 1.0)
        points = sgp.fit_inducing(
            sgp.SoftKIMarginal(cov_func=cov, inducing=64 if quick else 512), X, y, np.sqrt(0.001),
            epochs=5 if quick else 50, random_seed=0, progressbar=False,
        ).Z  # fmt: skip
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=points)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        idata, *quality = sample(*((100, 100) if quick else (300, 300)))
        return *predictions(gp, model, idata, problem["Xnew"], noise=True), *quality


def marginal_series(name, **settings):
    """A series with Gaussian noise: NUTS, or with neighbours, whose gradients follow n, a best point."""

    def fit(problem, quick):
        import pymc as pm

        import pymc_scalable_gp as sgp

        X, y = problem["X"], problem["y"]
        with pm.Model() as model:
            cov, sigma = kernel(1, "Matern32"), pm.HalfNormal("sigma", 1.0)
            start = sgp.subset_map(
                sgp.ExactMarginal(cov_func=cov), X, y, sigma, random_seed=0, progressbar=False
            )
            gp = getattr(sgp, name)(cov_func=cov, **settings)
            gp.build(X, point=start)
            gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
            if name == "VecchiaMarginal":
                point = pm.find_MAP(initvals=start, progressbar=False)
                mean, var = gp.predict(problem["Xnew"], point, diag=True)
                return mean, np.sqrt(var), None, None
            idata, *quality = sample(500, 300)
            return *predictions(gp, model, idata, problem["Xnew"]), *quality

    return fit


def statespace_series(problem, quick):
    """Importance sampling from a mode on a few rows; predictions from some of the draws."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    with pm.Model() as model:
        gp = sgp.StateSpaceMarginal(cov_func=kernel(1, "Matern32"))
        sigma = pm.HalfNormal("sigma", 1.0)
        gp.marginal_likelihood("y", X=problem["X"], y=problem["y"], sigma=sigma)
        idata = sgp.sample_importance(random_seed=1, progressbar=False)
        found = gp.predict_posterior(
            problem["Xnew"], idata, num_samples=40, random_seed=1, progressbar=False, model=model
        )
    return found["mean"].values, found["sd"].values, None, None


def hsgp_series(problem, quick):
    """NUTS on coefficients and hyperparameters."""
    import pymc as pm

    X, y = problem["X"], problem["y"]
    with pm.Model():
        gp = pm.gp.HSGP(m=[120], c=1.2, cov_func=kernel(1, "Matern32"), parametrization="centered")
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", gp.prior("f", X=X), sigma, observed=y)
        idata, *quality = sample(*((100, 100) if quick else (300, 300)))
        return *by_conditional(gp, idata, problem["Xnew"]), *quality


OURS = {
    "counts": {
        "VecchiaMarginal, likelihood=": (POSTERIOR, integrated(vecchia_marginal)),
        "GriefGP, likelihood=": (POSTERIOR, integrated(grief_latent)),
        "VecchiaLatent, 60 points": (POSTERIOR, latent(vecchia_latent)),
        "GriefGP, 100 features": (POSTERIOR, latent(grief_latent)),
        "pm.gp.HSGP, 15 x 15": (POSTERIOR, latent(hsgp_latent)),
    },
    "kin40k": {
        "VecchiaMarginal, 128, 60": (POINT, vecchia_map),
        "SoftKIMarginal, 512": (POSTERIOR, softki_nuts),
    },
    "series": {
        "StateSpaceMarginal": (POSTERIOR, statespace_series),
        "GriefGP, frozen, 200": (POSTERIOR, marginal_series("GriefGP", rank=200, basis="frozen")),
        "VecchiaMarginal, 0, 30": (POINT, marginal_series("VecchiaMarginal", n_inducing=0)),
        "VecchiaMarginal, 100, 30": (POINT, marginal_series("VecchiaMarginal", n_inducing=100)),
        "pm.gp.HSGP, 120": (POSTERIOR, hsgp_series),
    },
}  # fmt: skip
THEIRS = {
    "counts": ("gpytorch_svgp", "gpboost_vecchia"),
    "kin40k": ("gpytorch_svgp", "gpboost_vecchia", "gpboost_vif"),
    "series": ("celerite2_exact", "tinygp_exact", "gpytorch_svgp", "gpboost_vecchia"),
}


# ---- the table -------------------------------------------------------------------------------------------


def one(part, name, options):
    """Run one of our fits in this process, and hand back its row."""
    import pymc  # noqa: F401  imports are not counted

    import pymc_scalable_gp  # noqa: F401

    problem = PARTS[part](options.quick, options.data)
    clock = time.perf_counter()
    mean, sd, *quality = OURS[part][name][1](problem, options.quick)
    rhat, divergences, ess = [*quality, None][:3]
    hand_back(
        seconds=time.perf_counter() - clock, rhat=rhat, divergences=divergences, ess=ess,
        **scores(problem["truth"], mean, sd),
    )  # fmt: skip


def scores(truth, mean, sd):
    """Error of the mean, and share of the truth within 90% intervals."""
    error = np.abs(truth - mean)
    return {"rmse": float(np.sqrt(np.mean(error**2))), "coverage": float(np.mean(error < 1.645 * sd))}


def run_peer(python, fit, problem, kind="", limit=15.0):
    """Run one fit in another Python: its arrays by name, None if it took too long, or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "problem.npz", Path(folder) / "result.npz"
        np.savez(source, kind=kind, **problem)
        command = [python, Path(__file__).with_name("_peers.py"), fit, source, target]
        try:
            done = subprocess.run(command, timeout=60 * limit, capture_output=True, text=True, check=False)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode:  # killed for want of memory, it says nothing
            return (done.stderr.strip() or f"ended with status {done.returncode}").splitlines()[-1]
        return dict(np.load(target))


def peer(python, fit, part, problem, limit):
    """Row of a fit in another Python, or why there is none."""
    found = run_peer(python, fit, problem, part, limit)
    if not isinstance(found, dict):
        return found
    error = scores(problem["truth"], found["mean"], found["sd"])
    return {"seconds": float(found["seconds"]), "rhat": None, "divergences": None} | error


def fits(part, problem, options):
    """Name, kind and result of each fit, one after another."""
    flags = ["--quick"] if options.quick else []
    flags += ["--data", options.data] if options.data else []
    for name, (kind, _) in OURS[part].items():
        own = ("--one", part, name, *flags)
        yield name, kind, fresh_process(__file__, *own, limit=options.limit, threads=1)
    for fit in THEIRS[part] if options.peers else ():
        yield fit.replace("_", ", "), POINT, peer(options.peers, fit, part, problem, options.limit)


def row(name, kind, found, limit):
    """Cells of one fit."""
    if not isinstance(found, dict):
        return (name, found or f"stopped after {limit:g} min", *[""] * 6)
    coverage, rhat = f"{found['coverage']:.0%}", found["rhat"]
    quality = ("", "", "")
    if rhat is not None:
        rate = found["ess"] / found["seconds"]
        quality = (f"{rhat:.2f}", found["divergences"], f"{rate:.2g}")
    return (name, kind, found["seconds"], found["rmse"], coverage, *quality)


def main():
    """Run what the command line asks for."""
    parser = arguments(__doc__, data=True)
    parser.add_argument("--peers", help="a Python that has other packages")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--limit", type=float, default=15.0, help="minutes for each fit")
    parser.add_argument("--one", nargs=2, help="used by the script itself")
    options = parser.parse_args()
    if options.one:
        return one(*options.one, options)
    for part in options.parts.split(","):
        problem = PARTS[part](options.quick, options.data)
        if problem is None:
            print(f"{part}: left out (give --data DIR)")
            continue
        rows = []
        for found in fits(part, problem, options):
            rows.append(row(*found, options.limit))
            print(*rows[-1], file=sys.stderr, flush=True)
        header = ("", "what", "seconds", "RMSE", "90% coverage", "R-hat", "divergences", "ESS / s")
        table(part, header, rows)


if __name__ == "__main__":
    sys.exit(main())
