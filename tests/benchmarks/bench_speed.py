"""One logp + gradient, type II: GriefGP against pm.gp.MarginalApprox and the matrix products alone.

    python tests/benchmarks/bench_speed.py [--data DIR] [--quick]

Eight inputs, ARD kernel, "DTC", equal rank and number of inducing points (random rows). Each side
runs in a process of its own with empty compilation caches. "Floor" is what any algorithm of this
kind must do at this n and r: Phi' Phi, and Phi times an r x r matrix for the gradient.
"""

import time

import numpy as np
from _common import arguments, fresh_process, hand_back, regression, seconds, table


def ours(X, y, cov, sigma, rank, point):
    import pymc_scalable_gp as sgp

    gp = sgp.GriefGP(cov_func=cov, approx="DTC", grid=10, rank=rank)
    gp.build(X, point=point)
    gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)


def peer(X, y, cov, sigma, rank, point):
    import pymc as pm

    Xu = X[np.random.default_rng(1).permutation(len(X))[:rank]]
    gp = pm.gp.MarginalApprox(cov_func=cov, approx="DTC")
    gp.marginal_likelihood("y", X=X, Xu=Xu, y=y, sigma=sigma)


def floor(n, rank, repeats):
    """Seconds of Phi' Phi and Phi @ M."""
    rng = np.random.default_rng(2)
    phi, square = rng.standard_normal((n, rank)), rng.standard_normal((rank, rank))
    gram, product = (lambda: phi.T @ phi), (lambda: phi @ square)
    gram(), product()
    return seconds(gram, repeats) + seconds(product, repeats)


def measure(side, args):
    """Compile and time one side in this process."""
    import pymc as pm

    X, y, label = regression(args.data, args.n)
    d = X.shape[1]
    start = time.perf_counter()
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 1.0, 1.0, shape=d)
        eta = pm.HalfNormal("eta", 2.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        cov = eta**2 * pm.gp.cov.ExpQuad(d, ls=ell)
        side(X, y, cov, sigma, args.rank, {"ell": np.full(d, 2.5), "eta": 1.2})
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    rng = np.random.default_rng(3)
    center = np.r_[np.full(d, np.log(2.5)), np.log(1.2), np.log(0.15)]

    def call():
        value, gradient = function(center + 0.02 * rng.standard_normal(d + 2))
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            raise SystemExit("logp or its gradient is not finite")

    call()
    first = time.perf_counter() - start
    median = seconds(call, args.repeats)
    lowest = floor(len(y), args.rank, args.repeats)
    hand_back(first=first, median=median, floor=lowest, n=len(y), label=label)


def main():
    parser = arguments(__doc__, data=True)
    parser.add_argument("--n", type=int, help="rows (20000; quick: 4000)")
    parser.add_argument("--rank", type=int, help="rank and inducing points (500; quick: 200)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--side", choices=["ours", "peer"], help="used by the script itself")
    args = parser.parse_args()
    args.n = args.n or (4000 if args.quick else 20_000)
    args.rank = args.rank or (200 if args.quick else 500)
    if args.side:
        return measure({"ours": ours, "peer": peer}[args.side], args)
    options = ["--n", args.n, "--rank", args.rank, "--repeats", args.repeats]
    options += ["--data", args.data] if args.data else []
    us = fresh_process(__file__, *options, "--side", "ours")
    them = fresh_process(__file__, *options, "--side", "peer")
    lowest = us["floor"]
    table(
        f"{us['label']}, n = {us['n']}, r = m = {args.rank}: seconds of one logp + gradient",
        ["", "GriefGP", "MarginalApprox", "peer / ours", "floor", "ours / floor"],
        [
            ["median call", us["median"], them["median"], them["median"] / us["median"], lowest,
             us["median"] / lowest],
            ["compile + first call", us["first"], them["first"], them["first"] / us["first"], "",
             ""],
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
