"""Shift of the hyperparameters' posterior from the exact GP's under each class, before and after `correct`.

    python tests/benchmarks/bench_shift.py --data DIR [--sets kin40k,protein,elevators] [--rows 500,2000]
        [--classes NAME ...] [--draws N] [--nuts]

Standardised subsets; squared exponential kernel, which every class takes, with one lengthscale for each
input; LogNormal(log sqrt(d), 1), HalfNormal(2) and HalfNormal(.5) as priors of lengthscales, eta and sigma.
The reference is 4000 draws of `ExactMarginal` by `sample_importance`, or with --nuts 4 x 500 draws of NUTS
on it, minutes to hours, beside which 1000 of those draws have the first line. Shift is the largest
difference of means of a log hyperparameter in the reference's sds; ratios of sds are the smallest and the
largest. Each class has 400 draws, and its correction as many as --draws. KMCG, made for grids, is not among
the classes.
"""

from functools import partial

import numpy as np
from _common import arguments, regression, table
from bench_importance import against, timed

CLASSES = {
    "VecchiaMarginal": {"n_inducing": 100, "neighbors": 30},
    "CholQRMarginal": {"n_inducing": 200},
    "SoftKIMarginal": {"inducing": 200},
    "SKIPMarginal": {"rank": 15},
    "GriefGP": {"rank": 400},
}


def model_of(pm, sgp, name, X, y):
    """A model of rows X (n, d) under a class, and its GP."""
    d = X.shape[1]
    with pm.Model() as model:
        ell = pm.LogNormal("ell", np.log(np.sqrt(d)), 1.0, shape=d)
        eta, sigma = pm.HalfNormal("eta", 2.0), pm.HalfNormal("sigma", 0.5)
        cov = eta**2 * pm.gp.cov.ExpQuad(d, ls=ell)
        gp = getattr(sgp, name)(cov_func=cov, **CLASSES.get(name, {}))
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, progressbar=False)
    return model, gp


def lines(pm, sgp, X, y, args):
    """A line of the table for each class."""
    model, _ = model_of(pm, sgp, "ExactMarginal", X, y)
    draw = partial(sgp.sample_importance, progressbar=False)
    count = 1000 if args.nuts else 4000
    exact, seconds = timed(partial(draw, count, model=model, random_seed=2))
    khat, reference = f"{exact['posterior'].attrs['khat']:.2f}", exact
    if args.nuts:
        with model:
            reference = pm.sample(500, tune=400, chains=4, random_seed=1, progressbar=False)
    yield ["ExactMarginal", *against(exact, reference), "", "", khat, round(seconds), ""]
    for name in args.classes:
        model, gp = model_of(pm, sgp, name, X, y)
        own, seconds = timed(partial(draw, model=model, random_seed=1))
        correct = partial(gp.correct, own, model=model, draws=args.draws, random_seed=1)
        fixed, more = timed(partial(correct, progressbar=False))
        khat = f"{fixed['posterior'].attrs['khat']:.2f}"
        shifts = *against(own, reference), *against(fixed, reference)
        yield [name, *shifts, khat, round(seconds), round(more)]


def main():
    """Print a table for each set and size."""
    parser = arguments(__doc__, data=True)
    parser.add_argument("--sets", default="kin40k,protein,elevators")
    parser.add_argument("--rows", default="500,2000")
    parser.add_argument("--classes", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    parser.add_argument("--draws", type=int, default=2000, help="of a correction")
    parser.add_argument("--nuts", action="store_true", help="reference by NUTS")
    args = parser.parse_args()
    import pymc as pm

    import pymc_scalable_gp as sgp

    header = [
        "class", "shift", "sds' ratio", "corrected: shift", "sds' ratio", "k-hat", "posterior s",
        "correct s",
    ]  # fmt: skip
    for name in args.sets.split(","):
        for n in map(int, args.rows.split(",")):
            X, y, _ = regression(args.data, n, name)
            rows = lines(pm, sgp, X, y, args)
            table(f"{name}, {n} rows, {X.shape[1]} inputs", header, rows)


if __name__ == "__main__":
    main()
