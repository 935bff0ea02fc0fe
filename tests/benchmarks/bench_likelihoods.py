"""Posteriors under likelihoods that are not Gaussian, the function integrated out, by importance sampling.

    python tests/benchmarks/bench_likelihoods.py [--parts counts,classes,...] [--peers PYTHON]

Simulated data, `VecchiaMarginal` with 100 points and 15 neighbours: 2000 Poisson counts in the plane, 5000
yes-or-no outcomes in four inputs, 2000 censored Weibull times with five inputs, 5000 rows with 5% outliers
under a Student t, 10 000 counts in space and time, and "many", 100 000 counts in the plane; "first" counts
compilation, "again" is the same call with machine code on disk, left out for "many". Coverage is that of
90% intervals of the function at 500 new rows.

"gaussian": a density and a gradient of 2000 rows under ``lambda f: pm.Normal.dist(f, sigma)`` and of
counts, over those of ``sigma=sigma``, near the initial point; ``advice/costs.py`` holds the last as
``NEWTON``. "growth": a density of counts, seconds by rows, with neighbours and with 200 features.
"dense": 1000 counts, 100 draws of the posterior: sds of what the log density with neighbours differs by
from that of the exact GP, and Laplace's from the evidence, by functions drawn at the mode.

"gpboost": counts and outcomes of 5000 and 20 000 rows, the seconds of a model and its posterior, with
machine code on disk, beside those of GPBoost's best point (PYTHON has it) with as many points and
neighbours; log scores, in nats a row, are those of 1000 new rows.
"""

import itertools
import time

import numpy as np
from _common import arguments, seconds, table
from bench_peers import run_peer
from scipy import special, stats

SIZES = {
    "counts": (2000, 2),
    "classes": (5000, 4),
    "survival": (2000, 5),
    "outliers": (5000, 2),
    "space_time": (10_000, 3),
    "many": (100_000, 2),
}


def truth(X):
    """A smooth function (n,) of inputs in [0, 10]^d."""
    rest = 0.3 * np.sin(0.5 * X[:, 2:]).sum(axis=1)
    return 0.5 + np.sin(X[:, 0]) + np.cos(0.7 * X[:, 1]) + rest


def simulated(part, n, d, rng):
    """Inputs, targets, and a function of (pm, model) that returns the likelihood."""
    X = rng.uniform(0.0, 10.0, (n, d))
    f = truth(X)
    if part in ("counts", "space_time", "many"):
        return X, rng.poisson(np.exp(f)), lambda pm: lambda f: pm.Poisson.dist(mu=pm.math.exp(f))
    if part == "classes":
        y = rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-f))
        return X, y.astype(int), lambda pm: lambda f: pm.Bernoulli.dist(logit_p=f)
    if part == "survival":
        times = np.exp(f) * rng.weibull(1.5, n)

        def survival(pm):
            shape = pm.Gamma("shape", 4, 3)
            return lambda f: pm.Censored.dist(pm.Weibull.dist(shape, pm.math.exp(f)), None, 5.0)

        return X, np.minimum(times, 5.0), survival
    y = f + 0.2 * rng.standard_normal(n)
    y[: n // 20] += 4.0 * rng.standard_normal(n // 20)

    def outliers(pm):
        scale = pm.HalfNormal("scale", 0.5)
        return lambda f: pm.StudentT.dist(nu=4.0, mu=f, sigma=scale)

    return X, y, outliers


def kernel_of(pm, part, ell, d):
    """Matern 5/2 in space, times a squared exponential in time where the last input is that."""
    if part != "space_time":
        return pm.gp.cov.Matern52(d, ls=ell)
    space = pm.gp.cov.Matern52(3, active_dims=[0, 1], ls=ell[:2])
    return space * pm.gp.cov.ExpQuad(3, active_dims=[2], ls=ell[2])


def neighbors_of(sgp, cov, mean):
    """The GP of most parts."""
    return sgp.VecchiaMarginal(cov_func=cov, mean_func=mean, n_inducing=100, neighbors=15)


def exact_of(sgp, cov, mean):
    """What others approximate."""
    return sgp.ExactMarginal(cov_func=cov, mean_func=mean)


def model_of(pm, sgp, X, y, make, part="", make_gp=neighbors_of, **given):
    """A model with one lengthscale for each input, a scale and a mean."""
    d = X.shape[1]
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 6, shape=d)
        cov = pm.HalfNormal("eta", 2.0) ** 2 * kernel_of(pm, part, ell, d)
        mean = pm.gp.mean.Constant(pm.Normal("mean", 0, 2))
        gp = make_gp(sgp, cov, mean)
        given = given or {"likelihood": make(pm)}
        gp.marginal_likelihood("y", X=X, y=y, progressbar=False, **given)
    return model, gp


def posterior(pm, sgp, part, rng):
    """A line of the table."""
    n, d = SIZES[part]
    X, y, make = simulated(part, n, d, rng)
    begin = time.perf_counter()
    model, gp = model_of(pm, sgp, X, y, make, part)
    taken = []
    for _ in range(1 if part == "many" else 2):
        idata = sgp.sample_importance(model=model, random_seed=1, progressbar=False)
        taken.append(round(time.perf_counter() - begin))
        begin = time.perf_counter()
    new = rng.uniform(0.0, 10.0, (500, d))
    found = gp.predict_posterior(new, idata, num_samples=50, model=model, progressbar=False, random_seed=1)
    inside = np.abs(found["mean"].values - truth(new)) < 1.6449 * found["sd"].values
    a = idata["posterior"].attrs
    counts = f"{a['evaluations']} + {a['gradients']}"
    figures = [f"{a['khat']:.2f}", round(a["ess"]), counts, f"{inside.mean():.0%}"]
    again = [] if len(taken) == 2 else [None]
    return [part.replace("_", " and "), n, d, *taken, *again, *figures]


def functions(pm, model, gradient=True, spread=0.0):
    """Density, and density with gradient, at points around the initial one."""
    rng, initial = np.random.default_rng(0), model.initial_point()
    points = itertools.cycle([
        {name: v + spread * rng.standard_normal(np.shape(v)) for name, v in initial.items()}
        for _ in range(5)
    ])  # fmt: skip
    logp = model.compile_logp()
    logp(initial)
    if not gradient:
        return lambda: logp(next(points)), None
    both = model.compile_fn([model.logp(), model.dlogp()])
    both(initial)
    return lambda: logp(next(points)), lambda: both(next(points))


def gaussian(pm, sgp, rng):
    """Lines: the cost of likelihoods of one's own over that of Gaussian noise."""
    X = rng.uniform(0.0, 10.0, (2000, 2))
    f = truth(X)
    normal, counts = f + 0.3 * rng.standard_normal(len(X)), rng.poisson(np.exp(f))
    kinds = {
        "a normal distribution": (normal, lambda pm: lambda f: pm.Normal.dist(f, 0.3)),
        "counts": (counts, lambda pm: lambda f: pm.Poisson.dist(mu=pm.math.exp(f))),
    }
    classes = {
        "VecchiaMarginal": neighbors_of,
        "CholQRMarginal": lambda sgp, cov, mean: sgp.CholQRMarginal(
            cov_func=cov, mean_func=mean, n_inducing=100, approx="DTC"
        ),
        "ExactMarginal": exact_of,
    }
    found = []
    for name, make_gp in classes.items():

        def taken(y, make, make_gp=make_gp, **given):
            model, _ = model_of(pm, sgp, X, y, make, make_gp=make_gp, **given)
            return [seconds(each, 10) for each in functions(pm, model, spread=0.1)]

        own = taken(normal, None, sigma=0.3)
        for kind, (y, make) in kinds.items():
            ratios = np.array(taken(y, make)) / own
            found.append([name, kind, *(f"{ratio:.1f}" for ratio in ratios)])
    return found


def growth(pm, sgp, rng):
    """Lines: seconds of a density of counts, and what a row takes over that with a tenth of the rows."""

    def features(sgp, cov, mean):
        points = np.random.default_rng(0).uniform(0.0, 10.0, (200, 2))
        return sgp.SoftKIMarginal(cov_func=cov, mean_func=mean, inducing=points)

    kinds = {"100 points, 15 neighbors": (neighbors_of, 10_000), "200 features": (features, 100_000)}
    found = []
    for name, (make_gp, first) in kinds.items():
        taken = []
        for n in (first, 10 * first):
            X, y, make = simulated("counts", n, 2, rng)
            logp, _ = functions(pm, model_of(pm, sgp, X, y, make, make_gp=make_gp)[0], False)
            taken.append(seconds(logp, 3))
            found.append([name, n, f"{taken[-1]:.2f}", f"{taken[-1] / taken[0] / n * first:.2f}"])
    return found


def dense(pm, sgp, rng):
    """Lines: differences of log densities over posterior draws, in nats."""
    X, y, make = simulated("counts", 1000, 2, rng)
    model, gp = model_of(pm, sgp, X, y, make)
    exact, dense_gp = model_of(pm, sgp, X, y, make, make_gp=exact_of)
    idata = sgp.sample_importance(model=model, random_seed=1, progressbar=False)
    draws = idata["posterior"].dataset.stack(draw_=("chain", "draw"))
    free = [v.name for v in model.free_RVs]
    places = np.linspace(0, draws.sizes["draw_"] - 1, 100).astype(int)

    def values(model, outputs):
        function = model.compile_fn(outputs, inputs=model.free_RVs, point_fn=True)
        points = [{v: draws[v].values[..., i] for v in free} for i in places]
        return np.array([function(point) for point in points])

    with exact:
        laplace = values(exact, dense_gp.training.logp())
        ratios = values(exact, dense_gp.training.log_ratios())
    with model:
        near = values(model, gp.training.logp())
    off = np.log(np.exp(ratios - ratios.max(axis=1, keepdims=True)).mean(axis=1))
    off += ratios.max(axis=1)
    names = "100 points and 15 neighbors, from the exact GP", "Laplace's, from the evidence"
    return [
        [name, f"{each.mean():.3f}", f"{each.std(ddof=1):.3f}"]
        for name, each in zip(names, (near - laplace, -off), strict=True)
    ]


def log_score(part, y, mean, sd):
    """Log density of a row, on average, with the function normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    f = np.asarray(mean)[:, None] + np.asarray(sd)[:, None] * nodes
    if part == "counts":
        logp = stats.poisson.logpmf(y[:, None], np.exp(f))
    else:
        logp = stats.bernoulli.logpmf(y[:, None], special.expit(f))
    return special.logsumexp(logp, axis=1, b=weights / weights.sum()).mean()


def beside_gpboost(pm, sgp, python, sizes=(5000, 20_000)):
    """Lines: seconds and log scores of posteriors, and of GPBoost's best points."""

    def posterior(X, y, make, new, part):
        begin = time.perf_counter()
        model, gp = model_of(pm, sgp, X, y, make, part)
        idata = sgp.sample_importance(model=model, random_seed=1, progressbar=False)
        taken = time.perf_counter() - begin
        found = gp.predict_posterior(
            new, idata, num_samples=50, model=model, progressbar=False, random_seed=1
        )
        return taken, found["mean"].values, found["sd"].values

    found = []
    for part, name in (("counts", "poisson"), ("classes", "bernoulli_logit")):
        for n in (300, *sizes):  # the first fills the caches
            d, held = SIZES[part][1], 1000
            X, y, make = simulated(part, n + held, d, np.random.default_rng(1))
            own = posterior(X[held:], y[held:], make, X[:held], part)
            if n == 300:
                continue
            problem = {"X": X[held:], "y": y[held:], "Xnew": X[:held]}
            peer = run_peer(python, "gpboost_laplace", problem, name)
            score = f"{log_score(part, y[:held], *own[1:]):.3f}"
            if not isinstance(peer, dict):
                found.append([part, n, f"{own[0]:.0f}", peer, "", score, ""])
                continue
            other = log_score(part, y[:held], peer["mean"], peer["sd"])
            theirs = float(peer["seconds"])
            times = [f"{own[0]:.0f}", f"{theirs:.0f}", f"{own[0] / theirs:.1f}"]
            found.append([part, n, *times, score, f"{other:.3f}"])
    return found


def main():
    """Print the tables."""
    parser = arguments(__doc__)
    parser.add_argument("--parts", default="counts,classes,survival,outliers,space_time,gaussian")
    parser.add_argument("--peers", help="a Python that has GPBoost")
    args = parser.parse_args()
    if args.quick:
        args.parts = "counts"
    import pymc as pm

    import pymc_scalable_gp as sgp

    parts = args.parts.split(",")
    rows = [posterior(pm, sgp, part, np.random.default_rng(1)) for part in parts if part in SIZES]
    if rows:
        names = "likelihood,rows,inputs,first s,again s,k-hat,ESS,densities + gradients,coverage"
        table("Posteriors with the function integrated out", names.split(","), rows)
    if "gaussian" in parts:
        rng = np.random.default_rng(1)
        names = ["class", "likelihood", "density", "with gradient"]
        table("Other likelihoods over Gaussian noise, times", names, gaussian(pm, sgp, rng))
    if "growth" in parts:
        names = ["a density of counts", "rows", "s", "of a row, times"]
        table("Growth", names, growth(pm, sgp, np.random.default_rng(1)))
    if "gpboost" in parts and args.peers:
        names = "likelihood,rows,posterior s,best point s,times,log score,best point's".split(",")
        table("Beside GPBoost's best point", names, beside_gpboost(pm, sgp, args.peers))
    if "dense" in parts:
        names = ["log density of 1000 counts", "mean difference", "sd"]
        table("Over 100 posterior draws", names, dense(pm, sgp, np.random.default_rng(1)))


if __name__ == "__main__":
    main()
