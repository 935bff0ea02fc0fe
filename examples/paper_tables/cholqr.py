"""Experiments of the CholQR paper (Cao et al. 2013): kin40k, strings, histograms, a bad start.

    python examples/paper_tables/cholqr.py [--quick]                         # all but kin40k
    python examples/paper_tables/cholqr.py --parts kin40k,large --data DIR --points 128 256
    python examples/paper_tables/cholqr.py --parts gains --data DIR --points 256

SMSE is the mean squared error over the variance of the test targets; SNLP the mean negative log density
less that of a normal with the training mean and variance. The other choices of points get the same
optimiser for the hyperparameters, and as many of its steps: random rows; k-means centres' nearest rows;
the rows of largest conditional variance; and, on the discrete sets, the greedy choice of Titsias, which
adds the best of 16 (or 512) random rows, one after the other.
"""

import argparse
import resource
import time
from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from _data import find, load
from scipy.cluster.vq import kmeans2

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.cholqr.pivots import Candidates, PivotFactor
from pymc_scalable_gp.methods.cholqr.search import Hybrid, Target

ROUNDS, STEPS = 8, 15


def model_of(cov_of, y):
    """Model with log-normal scale and noise in the units of y."""
    scale = float(np.std(y))
    with pm.Model() as model:
        eta = pm.LogNormal("eta", np.log(scale), 1.0)
        sigma = pm.LogNormal("sigma", np.log(0.3 * scale), 1.0)
        cov = eta**2 * cov_of()
    return model, cov, sigma


def scores(gp, model, point, X, y, test):
    """SMSE and SNLP."""
    mean, var = gp.predict(test[0], point, diag=True, pred_noise=True, model=model)
    error = test[1] - mean
    trivial = 0.5 * (test[1] - y.mean()) ** 2 / y.var() + 0.5 * np.log(2 * np.pi * y.var())
    nlp = 0.5 * error**2 / var + 0.5 * np.log(2 * np.pi * var)
    return np.mean(error**2) / np.var(test[1]), np.mean(nlp - trivial)


def fit(name, cov_of, X, y, m, approx, seed, rounds=ROUNDS):
    """Objective, fitted GP and point for one way of choosing points; seconds."""
    model, cov, sigma = model_of(cov_of, y)
    gp = sgp.CholQRMarginal(cov_func=cov, approx=approx, n_inducing=m)
    start = time.perf_counter()
    options = {"model": model, "progressbar": False, "random_seed": seed}
    if name == "CholQR":
        chosen = gp.select_inducing(X, y, sigma, rounds=rounds, steps=STEPS, **options)
        objective, point = chosen.objective[-1], chosen.point
    else:
        target = Target(gp, X, y, sigma, model)
        hybrid = Hybrid(target, approx == "VFE", 16, np.random.default_rng(seed))
        hybrid.begin(target.hyper.start(), random_rows(X, m, seed))
        for _ in range(1 if name == "random" else 2):  # chosen again at the fitted hyperparameters
            if name != "random":
                rows = CHOICES[name](target.at(hybrid.theta), X, m, seed, approx)
                hybrid.begin(hybrid.theta, rows)
            for _ in range(rounds if name == "random" else rounds // 2):
                hybrid.improve(STEPS)
        gp.build(X, indices=hybrid.pivots)
        objective, point = hybrid.value(), target.hyper.untransformed(hybrid.theta)
    with model:
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    return objective, gp, model, point, time.perf_counter() - start


def kmeans_rows(at, X, m, seed, approx):
    """Distinct rows nearest to the centres."""
    sample = X[np.random.default_rng(seed).permutation(len(X))[:5000]]
    centres, _ = kmeans2(sample, m, minit="++", seed=seed, iter=10)
    taken = []
    for centre in centres:
        order = np.argsort(((X - centre) ** 2).sum(axis=1))[: len(taken) + 1]
        taken.append(next(int(i) for i in order if i not in taken))
    return np.array(taken)


def random_rows(X, m, seed):
    """Distinct rows at random."""
    order = np.random.default_rng(seed).permutation(len(X))
    distinct = np.sort(np.unique(X[order], axis=0, return_index=True)[1])
    return order[distinct[:m]]


def variance_rows(at, X, m, seed, approx):
    """Greedily the row of largest variance given those before: pivoted Cholesky."""
    kernel, residual, _, _ = at
    left, L, rows = kernel.diag.copy(), np.zeros((m, len(residual))), []
    for k in range(m):
        row = int(np.argmax(left))
        column = kernel.columns(np.array([row]))[:, 0] - L[:k, row] @ L[:k]
        L[k] = column / np.sqrt(column[row])
        left -= L[k] ** 2
        rows.append(row)
    return np.array(rows)


def titsias_rows(at, X, m, seed, approx, tried=16):
    """One point after the other: the best of some random rows by the exact objective."""
    kernel, residual, noise, _ = at
    rng = np.random.default_rng(seed)
    factor = PivotFactor(kernel, residual, noise, [], room=m)
    for _ in range(m):
        outside = np.setdiff1d(np.arange(len(X)), factor.pivots[: factor.size])
        rows = rng.permutation(outside)[:tried]
        row = int(rows[np.argmax(factor.gains(rows, factor.size, approx == "VFE"))])
        column = factor.residual(row)
        if column is not None:
            factor.append(row, column)
    return factor.pivots[: factor.size].copy()


CHOICES = {
    "k-means": kmeans_rows,
    "variance": variance_rows,
    "Titsias-16": titsias_rows,
    "Titsias-512": partial(titsias_rows, tried=512),
}


def compare(title, cov_of, X, y, test, sizes, names, approx="VFE", seed=0, rounds=ROUNDS):
    """A table of the choices for several numbers of points."""
    print(f"\n{title}: n = {len(y)}, {len(test[1])} test rows, {approx}")
    print(f"{'m':>5} {'choice':12}{'objective':>12}{'SMSE':>9}{'SNLP':>9}{'seconds':>9}")
    for m in sizes:
        for name in names:
            value, gp, model, point, spent = fit(name, cov_of, X, y, m, approx, seed, rounds)
            smse, snlp = scores(gp, model, point, X, y, test)
            print(f"{m:>5} {name:12}{value:>12.1f}{smse:>9.4f}{snlp:>9.3f}{spent:>9.1f}", flush=True)


def ard():
    """Squared-exponential kernel of kin40k's eight inputs, one lengthscale per input."""
    return pm.gp.cov.ExpQuad(8, ls=pm.LogNormal("ell", 0.5, 1, shape=8))


def kin40k_rows(args):
    """Training rows and targets, and the pair of the test rows."""
    data = load(find(args.data, "kin40k"))
    order = np.random.default_rng(args.seed).permutation(len(data.y))
    train, rest = order[:10_000], order[10_000:]
    y = (data.y - data.y[train].mean()) / data.y[train].std()
    return data.X[train], y[train], (data.X[rest], y[rest])


def gains(args):
    """One epoch of swaps from random points fitted to kin40k, by the number of gains computed."""
    X, y, _ = kin40k_rows(args)
    for m in args.points:
        model, cov, sigma = model_of(ard, y)
        gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=m)
        target = Target(gp, X, y, sigma, model)
        hybrid = Hybrid(target, True, 16, np.random.default_rng(args.seed))
        hybrid.begin(target.hyper.start(), random_rows(X, m, args.seed))
        for _ in range(ROUNDS):
            hybrid.improve(STEPS)
        for exact in (1, 4, 16, 64):
            epoch = Hybrid(target, True, 16, np.random.default_rng(args.seed), exact)
            epoch.begin(hybrid.theta, hybrid.pivots)
            before, clock = epoch.value(), time.perf_counter()
            tried, made = epoch.swaps(m)
            print(f"m = {m}, n_exact = {exact:2}: {before:.0f} to {epoch.value():.0f}, {made} of {tried} "
                  f"accepted, {time.perf_counter() - clock:.0f} s", flush=True)  # fmt: skip


def kin40k(args):
    """10 000 training rows, 30 000 test rows, one lengthscale per input."""
    X, y, test = kin40k_rows(args)
    names = args.choices or ["CholQR", "random", "k-means", "variance", "Titsias-16"]
    for approx in args.approx:
        compare("kin40k", ard, X, y, test, args.points, names, approx, args.seed)


def strings(args):
    """Random DNA whose target counts motifs, compared by their 4-letter substrings."""
    rng, n = np.random.default_rng(args.seed), 800 if args.quick else 3600
    motifs = ["".join(rng.choice(list("ACGT"), 8)) for _ in range(6)]
    weights, sequences, y = rng.standard_normal(6), [], np.zeros(n)
    for i in range(n):
        letters = "".join(rng.choice(list("ACGT"), 60))
        for place, k in zip(rng.permutation(6)[:3] * 10, rng.permutation(6)[:3], strict=True):
            letters = letters[:place] + motifs[k] + letters[place + 8 :]
            y[i] += weights[k]
        sequences.append(letters)
    y += 0.1 * rng.standard_normal(n)
    X, cov = np.arange(n, dtype=float)[:, None], sgp.cov.Spectrum(sequences, k=4)
    discrete("DNA, spectrum kernel", lambda: cov, X, y, args)


def digits(args):
    """Images' histograms (scikit-learn's digits), histogram intersection, the digit as target."""
    from sklearn.datasets import load_digits

    data = load_digits()
    X = data.data / data.data.sum(axis=1, keepdims=True)
    order = np.random.default_rng(args.seed).permutation(len(X))
    y = data.target[order].astype(float)
    discrete("digits, histogram intersection", lambda: sgp.cov.HistogramIntersection(64),
             X[order], y - y.mean(), args)  # fmt: skip


def discrete(title, cov_of, X, y, args):
    """Three quarters to train on."""
    split = 3 * len(y) // 4
    sizes = (16, 32) if args.quick else (16, 32, 64, 128)
    names = args.choices or ["CholQR", "random", "variance", "Titsias-16", "Titsias-512"]
    compare(title, cov_of, X[:split], y[:split], (X[split:], y[split:]), sizes, names,
            seed=args.seed)  # fmt: skip


def start(args):
    """One dimension, all points at one end: the objective that is reached, and every tenth row."""
    rng = np.random.default_rng(args.seed)
    x = np.sort(rng.uniform(0, 6, 200))[:, None]
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(200)
    print("\n200 rows in one dimension, objective by the start of the points")
    for title, rows in (("200 rows", np.arange(200)), ("every 10th", np.arange(0, 200, 10))):
        for name, first in (("one end", np.arange(8)), ("spread", np.linspace(0, 1, 8))):
            first = first if name == "one end" else (first * (len(rows) - 1)).astype(int)
            model, cov, sigma = model_of(lambda: pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("l", 0, 1)), y)
            gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=8)
            chosen = gp.select_inducing(
                x[rows], y[rows], sigma, start=first, model=model, progressbar=False
            )
            print(f"{title:12}{name:10} from {chosen.objective[0]:10.2f} to {chosen.objective[-1]:10.2f}")


def cost(args):
    """Seconds a swap against n and m, their slopes, and rejections by epoch."""
    print("\nseconds a swap (z = 16), 3 inputs")
    found = []
    for n, m in ((4000, 100), (8000, 100), (16000, 100), (8000, 200), (8000, 400)):
        rng = np.random.default_rng(0)
        X = rng.uniform(size=(n, 3))
        y = np.sin(6 * X).sum(axis=1) + 0.1 * rng.standard_normal(n)
        gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(3, ls=0.3), n_inducing=m)
        hybrid = Hybrid(Target(gp, X, y, pt.constant(0.1), None), True, 16, rng)
        hybrid.begin(np.zeros(0), random_rows(X, m, 0))
        hybrid.swaps(5)
        clock = time.perf_counter()
        tried, made = hybrid.swaps(40)
        found.append((n, m, (time.perf_counter() - clock) / tried))
        print(f"n = {n:6}, m = {m:4}: {found[-1][2]:.4f}, accepted {made} of {tried}")
    logs = np.log(np.array(found))
    print(f"slope in n {np.polyfit(logs[:3, 0], logs[:3, 2], 1)[0]:.2f}, in m "
          f"{np.polyfit(logs[[1, 3, 4], 1], logs[[1, 3, 4], 2], 1)[0]:.2f}")  # fmt: skip
    candidates = Candidates(hybrid.factor, 16, rng)
    hybrid.factor.to_last(0)
    gains = candidates.gains(hybrid.factor.size - 1, True)
    rows = rng.permutation(np.flatnonzero(np.isfinite(gains)))[:300]
    keep = hybrid.factor.size - 1
    exact = hybrid.factor.gains(rows, keep, True)
    ranks = np.argsort(np.argsort([gains[rows], exact], axis=1), axis=1)
    print(f"rank correlation of approximate and exact gains: {np.corrcoef(ranks)[0, 1]:.3f}")
    print("accepted by epoch: " + ", ".join(
        f"{made / tried:.0%}" for tried, made in (hybrid.swaps(60) for _ in range(6))
    ))  # fmt: skip


def large(args):
    """45 000 rows of protein, 500 points: two rounds of swaps at fixed hyperparameters."""
    data = load(find(args.data, "protein")).head(45_000)
    X, y = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0), data.y
    y = (y - y.mean()) / y.std()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(X.shape[1], ls=1.5), n_inducing=500)
    clock = time.perf_counter()
    chosen = gp.select_inducing(X, y, 0.6, rounds=2, steps=0, progressbar=False)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024**2
    print(f"\n{len(y)} rows, 500 points: {chosen.proposed.sum()} swaps, {chosen.accepted.sum()} made, "
          f"{time.perf_counter() - clock:.0f} s, {peak:.2f} GiB (3 n m numbers: "
          f"{3 * len(y) * 500 * 8 / 1024**3:.2f})")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--parts", default="strings,digits,start,cost")
    add("--data", help="folder with kin40k.npz and protein.npz")
    add("--points", type=int, nargs="+", default=[128, 256, 512], help="sizes on kin40k")
    add("--approx", nargs="+", default=["VFE", "DTC"], help="objectives on kin40k")
    add("--choices", nargs="+", choices=["CholQR", "random", *CHOICES], help="all by default")
    add("--quick", action="store_true", help="small discrete sets")
    add("--seed", type=int, default=0)
    args = parser.parse_args()
    parts = {"kin40k": kin40k, "strings": strings, "digits": digits, "start": start,
             "cost": cost, "large": large, "gains": gains}  # fmt: skip
    for part in args.parts.split(","):
        parts[part](args)


if __name__ == "__main__":
    main()
