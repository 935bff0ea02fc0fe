"""How far the posterior under `VecchiaMarginal` is from the exact GP's, over all hyperparameters.

    python examples/paper_tables/vif_posterior.py --data DIR [--rows 500] [--draws 1000]
    python examples/paper_tables/vif_posterior.py --simulate 2 3 4    # draws of a GP of so many inputs
    python examples/paper_tables/vif_posterior.py --quick

NUTS draws from the exact GP's posterior on a subset of rows; the same draws, weighted by the ratio of the
densities (Pareto-smoothed), are the posterior under the approximation: both share their Monte Carlo
error, so that small differences show. "k" is the shape of the weights' tail: below 0.7 they can be
relied on. Differences of means are in posterior standard deviations, the worst parameter's is shown;
"nats" is the standard deviation of the log densities' difference over the draws. FITC has the inducing
points alone.
"""

import argparse
from functools import partial

import arviz as az
import numpy as np
import pymc as pm
from _data import DataSet, find, load
from arviz_stats.base import array_stats
from vif import kernel_of

import pymc_scalable_gp as sgp

NAMES = ("ell", "eta", "sigma")
SETTINGS = [(30, 16), (30, 1), (60, 16), (100, 16)]  # neighbours and block
HEADER = f"{'set':13s}{'approximation':>22s}{'mean':>8s}{'sd':>8s}{'k':>7s}{'nats':>8s}  exact GP's sample"


def model_of(make, X, y, point=None):
    """Model of standardised data under a class of GPs, built at a point where one is given."""
    with pm.Model() as model:
        cov, sigma = kernel_of("ExpQuad", X.shape[1])
        gp = make(cov_func=cov)
        if point is not None:
            gp.build(X, point=point)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    return model


def densities(model, draws):
    """Log densities of y (s,) at draws of the hyperparameters."""
    value = model.compile_fn(
        model.logp(vars=[model["y"]], jacobian=False), inputs=model.value_vars, point_fn=True
    )
    flat = [{f"{name}_log__": np.log(draws[name][i]) for name in NAMES} for i in range(len(draws["eta"]))]
    return np.array([value(point) for point in flat])


def compare(draws, exact, near):
    """Worst shift of a mean in sds, worst ratio of sds less 1, tail shape, mean gap in nats."""
    log_weights, tail = array_stats.psislw(exact - near)  # which smooths minus what it is given
    weights = np.exp(log_weights)
    shifts, spreads = [], []
    for name in NAMES:
        values = draws[name].reshape(len(weights), -1)
        mean, sd = values.mean(axis=0), values.std(axis=0)
        moved = weights @ values
        shifts.append(np.abs(moved - mean) / sd)
        spreads.append(np.sqrt(weights @ (values - moved) ** 2) / sd - 1.0)
    worst = np.concatenate(spreads)
    return (np.concatenate(shifts).max(), worst[np.abs(worst).argmax()], float(tail), (near - exact).std())


def thinned(idata, step):
    """Every step-th draw of the hyperparameters; the worst R-hat and effective sample size of all."""
    posterior = idata["posterior"].dataset[list(NAMES)]
    rhat = max(float(v.max()) for v in az.rhat(posterior).data_vars.values())
    ess = min(float(v.min()) for v in az.ess(posterior).data_vars.values())
    flat = posterior.stack(sample=("chain", "draw")).transpose("sample", ...)
    return {key: flat[key].values[::step] for key in NAMES}, rhat, ess


def draw(d, n):
    """Standard normal inputs (n, d); an ExpQuad GP of lengthscale sqrt(d) / 2, with noise of sd 0.2."""
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d))
    K = pm.gp.cov.ExpQuad(d, ls=0.5 * np.sqrt(d))(X).eval()
    y = np.linalg.cholesky(K + 0.2**2 * np.eye(n)) @ rng.standard_normal(n)
    return DataSet(f"{d} inputs", X, y, np.zeros((n, 1), dtype=bool))


def run(name, data, args):
    """Lines of one set."""
    fold = data.fold(0)
    rows = np.random.default_rng(0).permutation(len(fold.y))[: args.rows]
    X, y = fold.X[rows], fold.y[rows]
    exact = model_of(sgp.ExactMarginal, X, y)
    with exact:
        start = pm.find_MAP(progressbar=False)
        idata = pm.sample(
            args.draws, tune=args.draws // 2, chains=2, cores=2, random_seed=1, progressbar=False
        )
    draws, rhat, ess = thinned(idata, args.thin)
    base = densities(exact, draws)

    makes = {"FITC": partial(sgp.CholQRMarginal, approx="FITC")}
    for k, g in SETTINGS:
        makes[f"k = {k}, g = {g}"] = partial(sgp.VecchiaMarginal, neighbors=k, block=g)
    for label, make in makes.items():
        near = partial(make, n_inducing=args.inducing)
        model = model_of(near, X, y, start)
        shift, spread, tail, gap = compare(draws, base, densities(model, draws))
        print(
            f"{name:13s}{label:>22s}{shift:8.3f}{spread:8.1%}{tail:7.2f}{gap:8.2f}  "
            f"n = {len(y)}, R-hat {rhat:.3f}, ESS {ess:.0f}",
            flush=True,
        )


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=".", help="folder of the .npz files")
    parser.add_argument("--sets", default="concrete,kin40k,protein")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--thin", type=int, default=2)
    parser.add_argument("--inducing", type=int, default=64)
    parser.add_argument("--simulate", type=int, nargs="+", default=[], help="numbers of inputs")
    parser.add_argument("--quick", action="store_true", help="200 rows of two inputs")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.draws, args.inducing, args.simulate = 200, 200, 20, [2]
    print(HEADER)
    for d in args.simulate:
        run(f"{d} inputs", draw(d, args.rows), args)
    for name in [] if args.simulate else args.sets.split(","):
        path = find(args.data, name)
        if path is None:
            print(f"{name}: no file under {args.data}, skipped")
            continue
        run(name, load(path), args)


if __name__ == "__main__":
    main()
