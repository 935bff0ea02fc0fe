"""SoftKI's costs: an epoch of training (no validation, as theirs), a gradient whatever n, and many inputs.

    python tests/benchmarks/bench_softki.py [--quick]
    python tests/benchmarks/bench_softki.py --data DIR

The authors' code (float32, pseudo-loss) took 3.80 s per epoch on bike and 3.30 s on elevators, on a
machine where a 20 000 x 1000 Gram product takes 0.26 s; that product is timed here and scales theirs.
"""

import time

import numpy as np
from _common import arguments, fresh_process, hand_back, peak_memory, regression, seconds, table

AUTHORS = {"bike": 3.80, "elevators": 3.30}
AUTHORS_PRODUCT = 0.26


def epochs(args):
    """Seconds of an epoch: 512 points, batches of 1024, float64."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    wide = np.random.default_rng(0).standard_normal((20_000, 1000))
    product = seconds(lambda: wide.T @ wide, 5)
    rows = []
    for name in AUTHORS if args.data else ("simulated",):
        X, y, label = regression(args.data, 2000 if args.quick else None, name)
        with pm.Model():
            ell, eta = pm.LogNormal("ell", 0.5, 1.0), pm.LogNormal("eta")
            cov = eta**2 * pm.gp.cov.ExpQuad(X.shape[1], ls=ell)
            gp = sgp.SoftKIMarginal(cov_func=cov, inducing=128 if args.quick else 512)
            clocks = []

            def run(count, start=None, gp=gp, X=X, y=y):
                return sgp.fit_inducing(
                    gp, X, y, epochs=count, start=start, validation=0.0, random_seed=0,
                    progressbar=False,
                )  # fmt: skip

            first = run(1)
            for count in (1, 6):  # both compile; their difference does not
                begin = time.perf_counter()
                run(count, first)
                clocks.append(time.perf_counter() - begin)
        ours = (clocks[1] - clocks[0]) / 5
        theirs = AUTHORS.get(name, np.nan) * product / AUTHORS_PRODUCT
        rows.append([f"{label}, n = {len(y)}", ours, theirs, ours / theirs, clocks[0]])
    table(
        f"one epoch (the Gram product took {product:.3f} s)",
        ["", "ours s", "authors, scaled s", "ratio", "one epoch with compilation s"],
        rows,
    )


def gradient(n, points, columns=17):
    """Seconds of log density and gradient over three parameters, and of building the likelihood."""
    import pymc as pm
    import pytensor
    import pytensor.tensor as pt

    import pymc_scalable_gp as sgp

    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, columns))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)
    before = peak_memory()
    with pm.Model() as model:
        ell, eta = pm.LogNormal("ell", 0.5, 1.0), pm.LogNormal("eta")
        sigma = pm.LogNormal("sigma", -2.0, 1.0)
        cov = eta**2 * pm.gp.cov.ExpQuad(columns, ls=ell)
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=rng.standard_normal((points, columns)))
        begin = time.perf_counter()
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        build = time.perf_counter() - begin
    memory = (peak_memory() - before) / 2**30
    logp = model.logp()
    run = pytensor.function(model.value_vars, [logp, *pt.grad(logp, model.value_vars)])
    at = [np.array(v) for v in (1.1, 0.5, -1.2)]
    run(*at)
    return build, memory, seconds(lambda: run(*at), 40)


def floor(points):
    """Seconds of the matrix products and factorisations of one gradient, by SciPy's BLAS."""
    from scipy.linalg import blas, lapack

    rng = np.random.default_rng(0)
    A = np.asfortranarray(rng.standard_normal((points, points)))
    S = np.asfortranarray(A @ A.T + points * np.eye(points))

    def once():
        lapack.dpotrf(S, lower=1)  # K_zz = L L'
        blas.dgemm(1.0, A, A)  # F = A L
        blas.dsyrk(1.0, A)  # F' F
        lapack.dpotrf(S, lower=1)
        lapack.dtrtri(S, lower=1)
        for _ in range(4):  # posterior covariance, cotangents of F and of L, and of L L'
            blas.dgemm(1.0, A, A)
        for _ in range(2):  # cotangent of K_zz
            blas.dtrsm(1.0, S, A, lower=1)

    return seconds(once, 40)


def many_inputs(points):
    """Seconds of training, seconds of a gradient and memory with 5000 rows of 1000 inputs."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 1000))
    y = np.tanh(X[:, 0] + 0.5 * X[:, 1]) + 0.1 * rng.standard_normal(5000)
    with pm.Model() as model:
        ell, eta = pm.LogNormal("ell", 3.0, 1.0), pm.LogNormal("eta")
        cov = eta**2 * pm.gp.cov.ExpQuad(1000, ls=ell)
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=points)
        before = peak_memory()
        begin = time.perf_counter()
        fit = sgp.fit_inducing(gp, X, y, epochs=2, random_seed=0, progressbar=False)
        trained = time.perf_counter() - begin
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=fit.Z)
        gp.marginal_likelihood("y", X=X, y=y, sigma=pm.LogNormal("sigma", -1.0, 1.0))
        run, at = model.compile_dlogp(), model.initial_point(0)
        run(at)
        spent = seconds(lambda: run(at), 20)
        memory = (peak_memory() - before) / 2**30
    return trained, spent, memory


def main():
    parser = arguments(__doc__, data=True)
    parser.add_argument("--part", choices=["gradient", "floor", "inputs"], help="for itself")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--points", type=int, default=512)
    args = parser.parse_args()
    if args.part == "gradient":
        build, memory, spent = gradient(args.rows, args.points)
        hand_back(build=build, memory=memory, spent=spent)
        return
    if args.part == "floor":
        hand_back(spent=floor(args.points))
        return
    if args.part == "inputs":
        trained, spent, memory = many_inputs(args.points)
        hand_back(trained=trained, spent=spent, memory=memory)
        return
    epochs(args)
    points = 128 if args.quick else 512
    rows = []
    bound = fresh_process(__file__, "--part", "floor", "--points", points)["spent"]
    for n in (1500, 15_000) if args.quick else (15_000, 1_500_000):
        found = fresh_process(__file__, "--part", "gradient", "--rows", n, "--points", points)
        rows.append(
            [f"n = {n}", found["spent"] * 1e3, bound * 1e3, found["spent"] / bound, found["build"],
             found["memory"]]
        )  # fmt: skip
    table(
        f"log density and gradient over lengthscale, scale and sigma, {points} points",
        ["", "ms", "BLAS floor ms", "ratio", "build s", "build GiB"],
        rows,
    )
    if not args.quick:
        found = fresh_process(__file__, "--part", "inputs", "--points", 256)
        print(
            f"5000 rows of 1000 inputs, 256 points: 2 epochs {found['trained']:.0f} s with "
            f"compilation, a gradient {1e3 * found['spent']:.0f} ms; {found['memory']:.2f} GiB"
        )


if __name__ == "__main__":
    main()
