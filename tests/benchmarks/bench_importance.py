"""Posteriors by importance sampling: seconds, k-hat, effective sample sizes, and NUTS on the same model.

    python tests/benchmarks/bench_importance.py --data DIR [--parts exact,correct,vif] [--big] [--nuts]

Sets are standardised; Matern 5/2 with one lengthscale for each input, LogNormal(log sqrt(d), 1), priors
HalfNormal(2) and HalfNormal(.5) for eta and sigma. Seconds include compilation where machine code is
already on disk. --nuts adds 4 x 500 draws of NUTS for the exact GP of 500 rows (a quarter of an hour),
--big corrections of 5000 rows and sets of 15 000 and 36 000.
"""

import time

import numpy as np
from _common import arguments, regression, table

POINTS, NEIGHBORS = 128, 30
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
    rough_model, gp = model_of(pm, sgp, X, y, points=64)
    rough, rough_seconds = timed(lambda: sgp.sample_importance(model=rough_model, **quiet))
    fixed, fixed_seconds = timed(lambda: gp.correct(rough, model=rough_model, **quiet))
    found = []
    if nuts:
        import arviz as az

        with model:
            reference, nuts_seconds = timed(
                lambda: pm.sample(500, tune=500, chains=4, cores=2, **quiet)
            )
        smallest = min(float(v.min()) for v in az.ess(reference, var_names=NAMES).values())
        found.append([f"{name}, exact, NUTS", round(nuts_seconds), "", round(smallest), "", "", ""])
    else:
        reference = sgp.sample_importance(4000, model=model, **quiet | {"random_seed": 2})
    found.append(row(f"{name}, exact", few, seconds, *against(few, reference)))
    found.append(row(f"{name}, VIF 64/30", rough, rough_seconds, *against(rough, reference)))
    found.append(row(f"{name}, corrected", fixed, fixed_seconds, *against(fixed, reference)))
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


def main():
    parser = arguments(__doc__, data=True)
    parser.add_argument("--parts", default="exact,correct,vif")
    parser.add_argument("--big", action="store_true")
    parser.add_argument("--nuts", action="store_true")
    args = parser.parse_args()
    import pymc as pm

    import pymc_scalable_gp as sgp

    parts, found = args.parts.split(","), []
    if "exact" in parts:
        found += exact_rows(pm, sgp, args.data, args.nuts)
    if "correct" in parts:
        found += corrections(pm, sgp, args.data, (2000, 5000) if args.big else (2000,))
    if "vif" in parts:
        found += many_rows(pm, sgp, args.data, args.big)
    header = [
        "posterior of",
        "s",
        "k-hat",
        "ESS",
        "densities + gradients",
        "worst shift",
        "sds' ratio",
    ]
    table("Posteriors by importance sampling", header, found)


if __name__ == "__main__":
    main()
