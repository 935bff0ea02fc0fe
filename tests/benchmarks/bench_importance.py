"""Posteriors by importance sampling: seconds, k-hat, effective sample sizes, and NUTS on the same model.

    python tests/benchmarks/bench_importance.py --data DIR [--parts exact,correct,vif,shapes] [--big]
        [--nuts] [--seeds N] [--rows N]

Sets are standardised; Matern 5/2 with one lengthscale for each input, LogNormal(log sqrt(d), 1), priors
HalfNormal(2) and HalfNormal(.5) for eta and sigma. Seconds include compilation where machine code is
already on disk. --nuts adds 4 x 500 draws of NUTS for the exact GP of 500 rows (a quarter of an hour),
--big corrections of 5000 rows and sets of 15 000 and 36 000; --rows is for corrections of as many rows
alone (10 000 take most of an hour). The part "shapes" needs no data: densities
that are hard for importance sampling, whose means and sds are known, and what k-hat says of them.
"""

import time
import warnings

import numpy as np
from _common import arguments, regression, table

POINTS, NEIGHBORS = 128, 30
MORE = 2000  # draws where an error of .1 sd is to be told from noise, of .05 with 400
NAMES = ("ell", "eta", "sigma")


def model_of(pm, sgp, X, y, exact=False, points=POINTS, neighbors=NEIGHBORS):
    """A model of rows X (n, d) and its GP."""
    d = X.shape[1]
    with pm.Model() as model:
        ell = pm.LogNormal("ell", np.log(np.sqrt(d)), 1.0, shape=d)
        eta, sigma = pm.HalfNormal("eta", 2.0), pm.HalfNormal("sigma", 0.5)
        cov = eta**2 * pm.gp.cov.Matern52(d, ls=ell)
        if exact:
            gp = sgp.ExactMarginal(cov_func=cov)
        else:
            gp = sgp.VecchiaMarginal(cov_func=cov, n_inducing=points, neighbors=neighbors)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, progressbar=False)
    return model, gp


def logs(idata):
    """Log hyperparameters (draws, p)."""
    posterior = idata["posterior"].dataset
    count = posterior.sizes["chain"] * posterior.sizes["draw"]
    return np.hstack([np.log(posterior[name].values).reshape(count, -1) for name in NAMES])


def against(idata, reference):
    """Largest difference of means in the reference's sds, and smallest and largest ratio of sds."""
    own, theirs = logs(idata), logs(reference)
    shift = np.abs(own.mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)
    ratio = own.std(axis=0) / theirs.std(axis=0)
    return f"{shift.max():.2f}", f"{ratio.min():.2f} to {ratio.max():.2f}"


def timed(function):
    """What a function returns, and its seconds."""
    begin = time.perf_counter()
    return function(), time.perf_counter() - begin


def row(name, idata, seconds, *more):
    """A line of the table."""
    a = idata["posterior"].attrs
    counts = f"{a['evaluations']} + {a['gradients']}"
    return [name, round(seconds), f"{a['khat']:.2f}", round(a["ess"]), counts, *more]


def exact_rows(pm, sgp, folder, nuts):
    """The exact GP of 500 rows, and an approximation that is corrected."""
    X, y, name = regression(folder, 500, "concrete")
    quiet = {"progressbar": False, "random_seed": 1}
    model, _ = model_of(pm, sgp, X, y, exact=True)
    few, seconds = timed(lambda: sgp.sample_importance(model=model, **quiet))
    many, many_seconds = timed(lambda: sgp.sample_importance(MORE, model=model, **quiet))
    rough_model, gp = model_of(pm, sgp, X, y, points=64)
    rough, rough_seconds = timed(lambda: sgp.sample_importance(model=rough_model, **quiet))
    fixed, fixed_seconds = timed(lambda: gp.correct(rough, draws=MORE, model=rough_model, **quiet))
    found = []
    if nuts:
        import arviz as az

        with model:
            reference, nuts_seconds = timed(lambda: pm.sample(500, tune=500, chains=4, cores=2, **quiet))
        smallest = min(float(v.min()) for v in az.ess(reference, var_names=NAMES).values())
        found.append([f"{name}, exact, NUTS", round(nuts_seconds), "", round(smallest), "", "", ""])
    else:
        reference = sgp.sample_importance(4000, model=model, **quiet | {"random_seed": 2})
    found.append(row(f"{name}, exact", few, seconds, *against(few, reference)))
    found.append(row(f"{name}, exact, {MORE} draws", many, many_seconds, *against(many, reference)))
    found.append(row(f"{name}, VIF 64/30", rough, rough_seconds, *against(rough, reference)))
    found.append(row(f"{name}, corrected, {MORE} draws", fixed, fixed_seconds, *against(fixed, reference)))
    return found


def corrections(pm, sgp, folder, sizes):
    """Corrections of kin40k's subsets to the exact GP; the reference is the approximation."""
    found = []
    for n in sizes:
        X, y, name = regression(folder, n)
        model, gp = model_of(pm, sgp, X, y)
        quiet = {"progressbar": False, "random_seed": 1, "model": model}
        rough, seconds = timed(lambda quiet=quiet: sgp.sample_importance(**quiet))
        found.append(row(f"{name}, {n} rows, VIF", rough, seconds, "", ""))
        better, seconds = timed(lambda gp=gp, rough=rough, quiet=quiet: gp.correct(rough, **quiet))
        found.append(row(f"{name}, {n} rows, corrected", better, seconds, *against(better, rough)))
    return found


def many_rows(pm, sgp, folder, big):
    """Neighbours, from the model to the draws, nothing built by hand."""
    sets = [("kin40k", 36_000, 128), ("elevators", 15_000, 100)] if big else [("kin40k", 4000, 128)]
    found = []
    for name, n, points in sets:
        X, y, _ = regression(folder, n, name)
        begin = time.perf_counter()
        model, _ = model_of(pm, sgp, X, y, points=points)
        idata = sgp.sample_importance(model=model, progressbar=False, random_seed=1)
        seconds = time.perf_counter() - begin
        found.append(row(f"{name}, {len(y)} rows, VIF", idata, seconds, "", ""))
    return found


def shapes(pt):
    """Log density of a flat x (p,), means (p,) and sds (p,), by name."""
    ones = np.ones

    def skew(x):
        return (x - pt.exp(x)).sum()

    def banana(x):
        return -0.5 * x[0] ** 2 - 2.0 * (x[1] - x[0] ** 2) ** 2

    def funnel(sd):
        def logp(x):
            return -0.5 * (x[0] / sd) ** 2 - 2.0 * x[0] - 0.5 * (x[1:] ** 2).sum() * pt.exp(-x[0])

        return logp, np.zeros(5), np.append(sd, np.full(4, np.exp(sd**2 / 4)))

    def student(x):
        return -17.5 * pt.log1p((x**2).sum() / 5.0)

    def two(apart, p):
        def logp(x):
            near, far = -0.5 * (x**2).sum(), -0.5 * ((x - apart) ** 2).sum()
            return pt.logaddexp(near, far)

        return logp, np.full(p, apart / 2), np.full(p, np.sqrt(1.0 + apart**2 / 4))

    def tails(x):
        narrow = np.log(0.8) - 0.5 * (x[:3] / 0.2) ** 2 - np.log(0.2)
        wide = np.log(0.2) - 0.5 * ((x[:3] - 1.2) / 1.2) ** 2 - np.log(1.2)
        return pt.logaddexp(narrow, wide).sum() - 0.5 * (x[3:] ** 2).sum()

    gumbel = -0.57721566, np.pi / np.sqrt(6.0)
    return {
        "normal, 10": (lambda x: -0.5 * (x**2).sum(), np.zeros(10), ones(10)),
        "skew, 10": (skew, gumbel[0] * ones(10), gumbel[1] * ones(10)),
        "skew, 20": (skew, gumbel[0] * ones(20), gumbel[1] * ones(20)),
        "tails of three, 10": (
            tails,
            np.append(np.full(3, 0.24), np.zeros(7)),
            np.append(np.full(3, np.sqrt(0.8 * 0.2**2 + 0.2 * 1.2**2 + 0.16 * 1.2**2)), ones(7)),
        ),
        "banana, 2": (banana, np.array([0.0, 1.0]), np.array([1.0, 1.5])),
        "Neal's funnel, sd 1, 5": funnel(1.0),
        "Neal's funnel, sd 3, 5": funnel(3.0),
        "t with 5 degrees of freedom, 30": (student, np.zeros(30), np.sqrt(5 / 3) * ones(30)),
        "two modes 5 sds apart, 3": two(5.0, 3),
        "two modes 20 sds apart, 3": two(20.0, 3),
        "the same, prior Uniform(-30, 30)": two(20.0, 3),
    }


def shape_rows(pm, sgp, pytensor, seeds):
    """k-hat, effective sample size, and errors of means and sds of each shape, over some seeds."""
    found = []
    for name, (logp, means, sds) in shapes(pytensor.tensor).items():
        with pm.Model() as model:
            if "Uniform" in name:
                x = pm.Uniform("x", -30.0, 30.0, shape=len(means))
            else:
                x = pm.Flat("x", shape=len(means))
            pm.Potential("logp", logp(x))
        runs = []
        for seed in range(seeds):
            # Compiling these would take longer than they run. The table shows the k-hat warned of.
            with pytensor.config.change_flags(mode="FAST_COMPILE"), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                idata = sgp.sample_importance(model=model, random_seed=seed, progressbar=False, cores=1)
            a, draws = (idata["posterior"].attrs, idata["posterior"]["x"].values.reshape(-1, len(means)))
            shift = np.abs(draws.mean(axis=0) - means) / sds
            ratio = draws.std(axis=0) / sds
            counts = a["evaluations"], a["gradients"]
            runs.append([a["khat"], a["ess"], *counts, shift.max(), ratio.min(), ratio.max()])
        khat, ess, evaluations, gradients, shift, low, high = np.array(runs).T
        found.append([
            name, f"{np.median(khat):.2f} ({khat.max():.2f})", round(np.median(ess)),
            f"{np.median(evaluations):.0f} + {np.median(gradients):.0f}", f"{np.median(shift):.2f}",
            f"{np.median(low):.2f} to {np.median(high):.2f}",
        ])  # fmt: skip
    return found


def main():
    parser = arguments(__doc__, data=True)
    parser.add_argument("--parts", default="exact,correct,vif")
    parser.add_argument("--seeds", type=int, default=10, help="of each shape")
    parser.add_argument("--big", action="store_true")
    parser.add_argument("--rows", type=int, help="of the only correction")
    parser.add_argument("--nuts", action="store_true")
    args = parser.parse_args()
    import pymc as pm
    import pytensor

    import pymc_scalable_gp as sgp

    parts, found = args.parts.split(","), []
    if "shapes" in parts:
        header = [
            "density, parameters", "k-hat (worst)", "ESS", "densities + gradients", "worst shift",
            "sds' ratio",
        ]  # fmt: skip
        title = f"Densities that are known, medians of {args.seeds} seeds"
        table(title, header, shape_rows(pm, sgp, pytensor, args.seeds))
    if "exact" in parts:
        found += exact_rows(pm, sgp, args.data, args.nuts)
    if "correct" in parts:
        sizes = (2000, 5000) if args.big else (2000,)
        found += corrections(pm, sgp, args.data, (args.rows,) if args.rows else sizes)
    if "vif" in parts:
        found += many_rows(pm, sgp, args.data, args.big)
    header = ["posterior of", "s", "k-hat", "ESS", "densities + gradients", "worst shift", "sds' ratio"]
    if found:
        table("Posteriors by importance sampling", header, found)


if __name__ == "__main__":
    main()
