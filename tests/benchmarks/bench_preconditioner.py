"""Steps of conjugate gradients with GP-GRIEF's features as preconditioner; SKIP by products.

    python tests/benchmarks/bench_preconditioner.py [--quick] [--data FOLDER] [--parts exact,skip]

"exact": ``(K + noise I) a = y`` with the kernel matrix itself, to a residual of 0.001 of y's norm; without
a preconditioner, with ``L L' + noise I`` from k pivoted Cholesky steps (largest variance first), and with
``Phi Phi' + noise I`` from k GP-GRIEF features (section 4.1 of Evans and Nair 2018). "skip": SKIPMarginal
with n_iter, the residual after P steps for several sizes of its own preconditioner, and density and
seconds of a gradient beside those of the features.
"""

import numpy as np
import pymc as pm
from _common import arguments, regression, seconds, table
from scipy.sparse.linalg import LinearOperator, cg

import pymc_scalable_gp as sgp
from pymc_scalable_gp.linops.preconditioner import LowRankPreconditioner

NOISE = 0.05  # variance, of standardised targets
MOST = 2000  # iterations
RANKS = 100, 400
STEPS = 10, 20  # of SKIP's conjugate gradients


def pivoted_cholesky(K, k):
    """Factor (n, k), the largest remaining variance first."""
    left, L = np.diag(K).copy(), np.zeros((len(K), k))
    for j in range(k):
        row = int(np.argmax(left))
        L[:, j] = (K[row] - L[:, :j] @ L[row, :j]) / np.sqrt(left[row])
        left -= L[:, j] ** 2
    return L


def iterations(K, y, factor):
    """Steps of conjugate gradients until the residual is a thousandth."""
    n, count = len(y), [0]
    white = LowRankPreconditioner.from_factor(factor / np.sqrt(NOISE))

    def step(_):
        count[0] += 1

    M = LinearOperator((n, n), lambda v: white.root_inverse(white.root_inverse(v)))
    cg(K + NOISE * np.eye(n), y, rtol=1e-3, maxiter=MOST, M=M, callback=step)
    return count[0]


def exact(args):
    """Table of iterations."""
    n, rows = 500 if args.quick else 4000, []
    X, y, label = regression(args.data, n)
    d = X.shape[1]
    for ell in (1.0, 2.0, 4.0):
        cov = pm.gp.cov.ExpQuad(d, ls=ell)
        K = cov(X).eval()
        found = [f"{ell:g}", iterations(K, y, np.zeros((n, 1)))]
        for k in RANKS:
            gp = sgp.GriefGP(cov_func=cov, grid=10, rank=k)
            gp.build(X)
            found += [iterations(K, y, pivoted_cholesky(K, k)), iterations(K, y, gp.features(X).eval())]
        rows.append(found)
    title = f"{label}, n = {n}, d = {d}, noise variance {NOISE}: iterations to a residual of 0.001"
    table(title, ["lengthscale", "none", *(f"{a} {k}" for k in RANKS for a in ("Cholesky", "GRIEF"))], rows)


def model_of(X, y, point, **options):
    """SKIPMarginal on X and its model, built at a point."""
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 0.0, 1.0, shape=X.shape[1])
        gp = sgp.SKIPMarginal(cov_func=pm.gp.cov.ExpQuad(X.shape[1], ls=ell), **options)
        gp.build(X, point=point)
        gp.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1.0))
    return gp, model


def residual(X, y, point, **options):
    """What conjugate gradients leave of the targets."""
    gp, model = model_of(X, y, point, **options)
    return f"{gp.training.figures([point], model)['residual']:.1e}"


def gradient(model, point):
    """Density, and seconds of a density with its gradient, after compilation."""
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    start = np.log(np.append(point["ell"], point["sigma"]))
    return float(function(start)[0]), seconds(lambda: function(start), 3)


def skip(args):
    """Residuals by size of the preconditioner; density and seconds beside those of the features."""
    n, ranks = (500, (8,)) if args.quick else (10_000, (20, 40))
    X, y, label = regression(args.data, n)
    X = X[:, :6]
    point = {"ell": np.full(X.shape[1], 1.5), "sigma": np.sqrt(NOISE)}
    rows, times = [], []
    for rank in ranks:
        for k in (1, 200, 400):
            left = [residual(X, y, point, rank=rank, n_iter=p, preconditioner=k) for p in STEPS]
            rows.append([str(rank**2), k, *left])
        found, spent = gradient(model_of(X, y, point, rank=rank)[1], point)
        options = {"n_iter": 10, "probes": 8, "preconditioner": 200}
        near, time = gradient(model_of(X, y, point, rank=rank, **options)[1], point)
        times.append([str(rank**2), f"{found:.1f}", f"{near:.1f}", spent, time, time / spent])
    title = f"{label}, n = {n}, d = {X.shape[1]}: residual after so many steps"
    table(title, ["features", "eigenpairs", *map(str, STEPS)], rows)
    header = ["features", "log density", "by products", "gradient s", "by products", "ratio"]
    table("10 steps, 8 probes, 200 eigenpairs", header, times)


def main():
    parser = arguments(__doc__, data=True)
    parser.add_argument("--parts", default="exact,skip")
    args = parser.parse_args()
    for part in args.parts.split(","):
        {"exact": exact, "skip": skip}[part](args)


if __name__ == "__main__":
    main()
