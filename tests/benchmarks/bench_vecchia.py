"""Near-exact and exact likelihoods: seconds per gradient, against matrix products and pm.gp.Marginal.

python tests/benchmarks/bench_vecchia.py [--rows 36000] [--inputs 8] [--points 128] [--neighbors 30]
                                         [--block 16] [--exact 2000] [--peers PYTHON]

Times are CPU seconds of the best of several calls. The floor is the same number of floating-point
operations as ``n/g ((g + k)^2 r + (g + k)^3) + n r^2`` for the density, three times as many for its
gradient, at the rate of one large product of matrices; that of the exact GP is one Cholesky factor and
the inverse from it. PYTHON is one that has
gpboost: one likelihood, without a gradient, of its VIF with as many points and neighbours.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pymc as pm
from scipy import linalg

import pymc_scalable_gp as sgp


def best(function, repeats=5):
    """CPU seconds of the fastest call, and the value."""
    found = []
    for _ in range(repeats):
        clock = time.process_time()
        value = function()
        found.append(time.process_time() - clock)
    return min(found), value


def gradient(model):
    """A function of nothing: density and gradient at the initial point; wall seconds until the first."""
    clock = time.perf_counter()
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    start = model.initial_point(0)
    x = np.concatenate([np.ravel(start[v.name]) for v in model.value_vars])
    function(x)
    return lambda: function(x), time.perf_counter() - clock


def model_of(make, X, y):
    """Standardised data, one lengthscale per input."""
    d = X.shape[1]
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 3, shape=d, initval=np.full(d, np.sqrt(d)))
        eta, sigma = pm.HalfNormal("eta", 1), pm.HalfNormal("sigma", 1, initval=0.2)
        make(eta**2 * pm.gp.cov.ExpQuad(d, ls=ell)).marginal_likelihood("y", X=X, y=y, sigma=sigma)
    return model


def gpboost(python, X, y, args):
    """Seconds of one likelihood at the initial point."""
    d = X.shape[1]
    parameters = np.r_[0.2**2, 1.0, np.full(d, np.sqrt(d))]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "data.npz"
        np.savez(source, X=X, y=y, parameters=parameters)
        script = Path(__file__).with_name("_gpboost_vif.py")
        command = [python, script, source, args.points, args.neighbors, 2]
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=36_000)
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--points", type=int, default=128)
    parser.add_argument("--neighbors", type=int, default=30)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--exact", type=int, default=2000)
    parser.add_argument("--peers", help="a Python that has gpboost")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((args.rows, args.inputs))
    y = np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(args.rows)

    A, B = rng.standard_normal((2, 1500, 1500))
    rate = 2 * 1500**3 / best(lambda: A @ B)[0]
    local = args.neighbors + args.block
    work = args.rows / args.block * (local**2 * args.points + local**3)
    density_floor = (work + args.rows * args.points**2) / rate
    floor = 4 * density_floor
    model = model_of(
        lambda cov: sgp.VecchiaMarginal(
            cov_func=cov, n_inducing=args.points, neighbors=args.neighbors, block=args.block
        ),
        X, y,
    )  # fmt: skip
    function, first = gradient(model)
    seconds, _ = best(function)
    density, point = model.compile_logp(), model.initial_point(0)
    density(point)
    alone, _ = best(lambda: density(point))
    print(
        f"VecchiaMarginal n={args.rows} d={args.inputs} r={args.points} k={args.neighbors} "
        f"g={args.block}: {seconds:.3f} s, {seconds / floor:.1f} x the floor of {floor:.3f} s; "
        f"compilation and first call {first:.0f} s; density alone {alone:.3f} s, "
        f"{alone / density_floor:.1f} x its floor"
    )
    if args.peers:
        spent = gpboost(args.peers, X, y, args)
        print(f"GPBoost's VIF: one likelihood {spent:.2f} s, {spent / seconds:.1f} x our gradient")
    X, y = X[: args.exact], y[: args.exact]
    ours, first = gradient(model_of(lambda cov: sgp.ExactMarginal(cov_func=cov), X, y))
    theirs, their_first = gradient(model_of(lambda cov: pm.gp.Marginal(cov_func=cov), X, y))
    (a, value), (b, expected) = best(ours), best(theirs)
    K = X @ X.T + args.exact * np.eye(args.exact)
    least = best(lambda: linalg.lapack.dpotri(linalg.lapack.dpotrf(K, lower=1)[0], lower=1))[0]
    print(
        f"ExactMarginal n={args.exact}: {a:.3f} s, pm.gp.Marginal {b:.3f} s, ratio {b / a:.2f}; first "
        f"{first:.0f} and {their_first:.0f} s; log densities {value[0]:.4f} and {expected[0]:.4f}; "
        f"LAPACK's potrf and potri {least:.3f} s"
    )


if __name__ == "__main__":
    main()
