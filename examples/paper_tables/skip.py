"""Experiments of the SKIP paper (Gardner et al. 2018): errors of products, and UCI data.

    python examples/paper_tables/skip.py [--quick] [--gpytorch PYTHON]     # error of one product
    python examples/paper_tables/skip.py --parts frozen                        # away from the build
    python examples/paper_tables/skip.py --parts memory                        # half a million rows
    python examples/paper_tables/skip.py --parts uci --data DIR --sets elevators,pumadyn32nm

"matvec" is the set-up of the paper's figure 2: 2500 standard normal rows, lengthscale 1, the kernel matrix
times a random vector. "ideal" cuts every product to its r leading eigenvectors, the best that a tree of
rank r can do; "+ diagonal" adds what the approximation misses of the diagonal, as FITC does. PYTHON is one
that has gpytorch 1.15. "uci" predicts test rows at the MAP hyperparameters of 1000 rows, beside GriefGP
(1000 eigenfunctions) and SGPR (300 k-means points), and prints the mean absolute error, standardised.
"""

import argparse
import json
import resource
import subprocess
import time
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from _data import find, load
from scipy.cluster.vq import kmeans2

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.skip.tree import merge_by_halves
from pymc_scalable_gp.utils.compiled import evaluate

# Test MAE and training seconds on a Titan Xp, as the paper gives them; its splits and scaling differ.
PAPER = {
    "pumadyn32nm": "0.766 / 65",
    "elevators": "0.072 / 23",
    "keggdirected": "0.065 / 66",
    "protein": "1.97 / 35",
}
CELLS = [(d, r) for d in (4, 8, 12) for r in (10, 30, 100)]


def relative(found, exact):
    """Relative error in the 2-norm."""
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def ours(X, v, K, rank):
    """Errors without and with the diagonal; seconds to build, for the roots again, and for a product."""
    d = X.shape[1]
    with pm.Model() as model:
        ell = pm.HalfNormal("ell", 1)
        gp = sgp.SKIPMarginal(cov_func=pm.gp.cov.ExpQuad(d, ls=ell), rank=rank)
        start = time.perf_counter()
        gp.build(X, point={"ell": 1.0})
        build = time.perf_counter() - start
    roots = gp.feature_map.roots(pt.constant(X))[0]
    (graphs,) = [model.replace_rvs_by_values(list(roots))]
    value = model.rvs_to_values[ell]
    function = pytensor.function([value], graphs)
    function(0.0)
    start = time.perf_counter()
    A, B = function(0.0)
    again = time.perf_counter() - start
    left, right, vector = pt.dmatrix(), pt.dmatrix(), pt.dvector()
    product = pytensor.function(
        [left, right, vector], sgp.ops.hadamard_matvec(left, right, vector), trust_input=True
    )
    found = product(A, B, v)
    start = time.perf_counter()
    for _ in range(5):
        product(A, B, v)
    spent = (time.perf_counter() - start) / 5
    missed = 1.0 - np.einsum("na,nb->n", A**2, B**2)
    exact = K @ v
    return [relative(found, exact), relative(found + missed * v, exact), build, again, spent]


def leading(K, rank):
    """Root of K's best approximation of that rank, by subspace iteration on a wide block."""
    rng = np.random.default_rng(0)
    Q = rng.standard_normal((len(K), min(len(K), rank + 40)))
    for _ in range(8):
        Q = np.linalg.qr(K @ Q)[0]
    values, vectors = np.linalg.eigh(Q.T @ K @ Q)
    keep = slice(-1, -rank - 1, -1)
    return Q @ vectors[:, keep] * np.sqrt(np.maximum(values[keep], 0.0))


def ideal(X, v, K, rank):
    """Errors of the same tree with the best truncation at every product."""
    roots = [leading(np.exp(-0.5 * (x[:, None] - x) ** 2), rank) for x in X.T]
    A, B = merge_by_halves(roots, lambda A, B: leading((A @ A.T) * (B @ B.T), rank))
    low = (A @ A.T) * (B @ B.T)
    exact = K @ v
    return [relative(low @ v, exact), relative(low @ v + (1.0 - np.diag(low)) * v, exact)]


def peer(python, d, rank, seeds):
    """GPyTorch's error, seconds of its first product and of another."""
    if python is None:
        return [np.nan] * 3
    script = Path(__file__).with_name("_gpytorch_skip.py")
    command = [python, str(script), str(d), str(rank), str(seeds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def matvec(args):
    """The table of errors."""
    names = ("GPyTorch", "ours", "ideal", "ours+diag", "ideal+diag", "build s", "roots s",
             "product s", "GPyTorch build s", "product s")  # fmt: skip
    print(f"{'d':>3}{'r':>5}" + "".join(f"{name:>17}" for name in names))
    for d, rank in CELLS[:2] if args.quick else CELLS:
        rows = []
        for seed in range(args.seeds):
            rng = np.random.default_rng(seed)
            X, v = rng.standard_normal((2500, d)), rng.standard_normal(2500)
            K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
            rows.append(ours(X, v, K, rank) + ideal(X, v, K, rank))
        error, diagonal, *_, best, best_diagonal = np.mean(rows, axis=0)
        build, again, product = np.min(rows, axis=0)[2:5]  # the first seed compiles for the others
        theirs = peer(args.gpytorch, d, rank, args.seeds)
        values = [theirs[0], error, best, diagonal, best_diagonal, build, again, product, *theirs[1:]]
        print(f"{d:>3}{rank:>5}" + "".join(f"{value:>17.4g}" for value in values), flush=True)


def lanczos_root(A, B, rank, rng):
    """Root of ``(A A') * (B B')`` from `rank` Lanczos steps, as in the paper."""
    start, vector = rng.standard_normal(len(A)), pt.dvector()
    columns, T = [start / np.linalg.norm(start)], np.zeros((rank, rank))
    product = pytensor.function([vector], sgp.ops.hadamard_matvec(A, B, vector), mode="FAST_COMPILE")
    for j in range(rank):
        w = product(columns[j])
        Q = np.array(columns)
        T[: j + 1, j] = T[j, : j + 1] = Q @ w
        for _ in range(2):
            w = w - Q.T @ (Q @ w)
        columns.append(w / np.linalg.norm(w))
    values, vectors = np.linalg.eigh(T)
    return np.array(columns[:rank]).T @ (vectors * np.sqrt(np.maximum(values, 0.0)))


def lanczos_error(X, v, K, rank, ell, rng):
    """Error of a tree of Lanczos steps, with the diagonal, from the best 1-D roots."""
    roots = [leading(np.exp(-0.5 * ((x[:, None] - x) / ell) ** 2), rank) for x in X.T]
    A, B = merge_by_halves(roots, lambda A, B: lanczos_root(A, B, rank, rng))
    low = (A @ A.T) * (B @ B.T)
    return relative(low @ v + (1.0 - np.diag(low)) * v, K @ v)


def frozen(args):
    """Errors away from the lengthscale of the build, beside a build there and Lanczos steps there."""
    print(f"{'d':>3}{'r':>5}{'ell':>6}{'built for 1':>13}{'built for ell':>15}{'Lanczos':>9}")
    for d, rank in ((4, 30), (8, 30), (12, 30)):
        rng = np.random.default_rng(0)
        X, v = rng.standard_normal((2500, d)), rng.standard_normal(2500)
        squares = sum((x[:, None] - x) ** 2 for x in X.T)
        for value in (0.6, 1.6):
            K, errors = np.exp(-0.5 * squares / value**2), []
            for built in (1.0, value):
                with pm.Model() as model:
                    ell = pm.HalfNormal("ell", 1)
                    gp = sgp.SKIPMarginal(cov_func=pm.gp.cov.ExpQuad(d, ls=ell), rank=rank)
                    gp.build(X, point={"ell": built})
                A, B = evaluate(list(gp.feature_map.roots(pt.constant(X))[0]), {"ell": value}, model)
                low = (A @ A.T) * (B @ B.T)
                errors.append(relative(low @ v + (1.0 - np.diag(low)) * v, K @ v))
            errors.append(lanczos_error(X, v, K, rank, value, rng))
            print(f"{d:>3}{rank:>5}{value:>6}{errors[0]:>13.4f}{errors[1]:>15.4f}{errors[2]:>9.4f}",
                  flush=True)  # fmt: skip


def peers(cov, fold, args):
    """The classes that are compared, each with its name."""
    centres, _ = kmeans2(fold.X[:: max(1, len(fold.X) // 5000)], 300, minit="++", seed=0, iter=10)
    yield "SKIP", sgp.SKIPMarginal(cov_func=cov, rank=args.rank), {}
    yield "GriefGP", sgp.GriefGP(cov_func=cov, grid=10, rank=1000), {}
    yield "SGPR", pm.gp.MarginalApprox(approx="VFE", cov_func=cov), {"Xu": centres}


def uci(args):
    """Mean absolute error on test rows of each class, at the exact GP's MAP of 1000 rows."""
    print(f"{'set':14}{'class':10}{'n':>7}{'d':>4}{'MAE':>9}{'RMSE':>9}{'seconds':>9}   paper MAE / s")
    for name in args.sets.split(","):
        path = find(args.data, name)
        if path is None:
            raise SystemExit(f"there is no {name}.npz in {args.data}")
        fold = load(path).fold(0)
        n, d = fold.X.shape
        with pm.Model():
            cov, sigma = ard(d)
            point = sgp.subset_map(
                pm.gp.Marginal(cov_func=cov),
                fold.X,
                fold.y,
                sigma,
                random_seed=args.seed,
                progressbar=False,
            )
        for kind in range(3):
            start = time.perf_counter()
            with pm.Model() as model:
                cov, sigma = ard(d)
                label, gp, more = list(peers(cov, fold, args))[kind]
                if label != "SGPR":
                    gp.build(fold.X, point=point)
                gp.marginal_likelihood("y", X=fold.X, y=fold.y, sigma=sigma, **more)
            mean, _ = gp.predict(fold.X_test, point, diag=True, model=model)
            error = (fold.y_test - fold.center) / fold.scale - mean
            print(
                f"{name:14}{label:10}{n:>7}{d:>4}{np.abs(error).mean():>9.4f}"
                f"{np.sqrt((error**2).mean()):>9.4f}{time.perf_counter() - start:>9.1f}   "
                f"{PAPER.get(name, '') if kind == 0 else ''}",
                flush=True,
            )


def ard(d):
    """Squared-exponential kernel with a lengthscale per input, and the noise's sd."""
    ell, eta = pm.LogNormal("ell", 1, 1, shape=d), pm.LogNormal("eta", 0, 1)
    return eta**2 * pm.gp.cov.ExpQuad(d, ls=ell), pm.LogNormal("sigma", -1, 1)


def memory(args):
    """Peak memory of a latent model's density and gradient."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (args.rows, 8))
    with pm.Model() as model:
        ell, eta = pm.LogNormal("ell", 0, 0.5, shape=8), pm.HalfNormal("eta", 1)
        gp = sgp.SKIPLatent(cov_func=eta**2 * pm.gp.cov.ExpQuad(8, ls=ell), rank=args.rank)
        gp.build(X)
        f = gp.prior("f", X=X)
        pm.Poisson("y", pm.math.exp(f), observed=rng.poisson(1.0, args.rows))
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    start = 0.01 * rng.standard_normal(9 + gp.rank)
    clock = time.perf_counter()
    function(start)
    first = time.perf_counter() - clock
    clock = time.perf_counter()
    function(start)
    spent = time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"n = {args.rows}, d = 8, r = {args.rank}: gradient {spent:.1f} s (first call {first:.0f} s), "
          f"peak {peak:.2f} GiB, "
          f"4 d n r doubles {4 * 8 * args.rows * args.rank * 8 / 1024**3:.2f} GiB")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--parts", default="matvec", help="comma-separated: matvec, frozen, uci, memory")
    add("--data", help="folder with the UCI sets")
    add("--sets", default="elevators,pumadyn32nm,keggdirected,protein")
    add("--rank", type=int, default=20)
    add("--rows", type=int, default=500_000, help="rows of the part memory")
    add("--seeds", type=int, default=10, help="of the table of errors; seconds are their least")
    add("--seed", type=int, default=0, help="of the 1000 rows of the part uci")
    add("--quick", action="store_true", help="two cells of the table")
    add("--gpytorch", help="a Python that has gpytorch, for the peer's columns")
    args = parser.parse_args()
    for part in args.parts.split(","):
        {"matvec": matvec, "uci": uci, "memory": memory, "frozen": frozen}[part](args)


if __name__ == "__main__":
    main()
