"""Type I with the rotated basis: NUTS over the eigenfunctions' weights, at a cost free of n.

    python tests/benchmarks/bench_type1.py [--data DIR] [--quick]
    python tests/benchmarks/bench_type1.py --big

Without --big: GriefGP against the same log density written out in PyTensor with constants, sampled
the same way, each in a process of its own with empty compilation caches; seconds are those of
`pm.sample`, compilation included. --big: 2 049 280 simulated rows with 11 inputs; seconds of each
stage, the build next to its floor (Phi' Phi by matrix product, and reading X), and peak memory.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
from _common import arguments, fresh_process, hand_back, peak_memory, regression, seconds, table

BLOCK = 4096


def start_values(X, y, seed=0):
    """Hyperparameters of an exact GP on at most 1000 rows (MAP)."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    with pm.Model():
        ell = pm.LogNormal("ell", 1.0, 1.0, shape=X.shape[1])
        eta, sigma = pm.HalfNormal("eta", 2.0), pm.HalfNormal("sigma", 1.0)
        exact = pm.gp.Marginal(cov_func=eta**2 * pm.gp.cov.ExpQuad(X.shape[1], ls=ell))
        return sgp.subset_map(exact, X, y, sigma, random_seed=seed, progressbar=False)


def rotated(X, theta, rank):
    """GP with a fixed kernel and the basis that is orthogonal on X; the time to build it."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    cov = float(theta["eta"]) ** 2 * pm.gp.cov.ExpQuad(X.shape[1], ls=theta["ell"])
    gp = sgp.GriefGP(cov_func=cov, grid=10, rank=rank, rotate=True)
    return gp, seconds(lambda: gp.build(X))


def sample(draws):
    """Sample the model in context; seconds, and what ArviZ says of the draws."""
    import arviz as az
    import pymc as pm

    start = time.perf_counter()
    idata = pm.sample(draws, tune=draws, chains=4, random_seed=1, progressbar=False)
    spent = time.perf_counter() - start
    posterior = idata.posterior
    low = min(float(v.min()) for v in az.ess(posterior).data_vars.values())
    high = max(float(v.max()) for v in az.rhat(posterior).data_vars.values())
    diverging = int(idata.sample_stats["diverging"].sum())
    noise = float(posterior["sigma"].mean())
    return {"wall": spent, "ess": low, "rhat": high, "diverging": diverging, "sigma": noise}


def priors(rank, sigma):
    """Weights and noise, as in the paper: log-normal weights with mode 1 and variance 100."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    return sgp.weights_prior("w", rank), pm.HalfNormal("sigma", 1.0, initval=sigma)


def ours(args):
    """GriefGP; leaves the constants for :func:`plain`."""
    import pymc as pm

    X, y, label = regression(args.data, args.n)
    theta = start_values(X, y)
    gp, build = rotated(X, theta, args.rank)
    phi = gp.features(X).eval()  # columns u_j s_j
    s = np.sqrt((phi**2).sum(axis=0))
    u = phi.T @ y / s
    np.savez(args.folder / "constants.npz", u=u, s=s, total=y @ y, n=len(y), sigma=theta["sigma"])
    del phi
    with pm.Model():
        w, sigma = priors(gp.rank, theta["sigma"])
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, weights=w)
        result = sample(args.draws)
    hand_back(build=build, n=len(y), rank=gp.rank, label=label, **result)


def plain(args):
    """The same density, written out."""
    import pymc as pm
    import pytensor.tensor as pt

    c = np.load(args.folder / "constants.npz")
    n, u2, s2 = int(c["n"]), c["u"] ** 2, c["s"] ** 2
    with pm.Model():
        w, sigma = priors(len(u2), c["sigma"])
        t = w * s2 + sigma**2
        inside = (pt.log(t) + u2 / t).sum()
        outside = (n - len(u2)) * pt.log(sigma**2) + (c["total"] - u2.sum()) / sigma**2
        pm.Potential("y", -0.5 * (inside + outside + n * np.log(2 * np.pi)))
        result = sample(args.draws)
    hand_back(**result)


def small(args):
    """Compare the two."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--n", args.n, "--rank", args.rank, "--draws", args.draws, "--folder", folder]
        options += ["--data", args.data] if args.data else []
        us = fresh_process(__file__, *options, "--side", "ours")
        them = fresh_process(__file__, *options, "--side", "plain")
    rate, peer_rate = us["ess"] / us["wall"], them["ess"] / them["wall"]
    table(
        f"{us['label']}, n = {us['n']}, {us['rank']} weights, 4 x ({args.draws} + {args.draws}) "
        f"draws; basis built in {us['build']:.1f} s",
        ["", "GriefGP", "plain PyTensor", "ours / peer"],
        [
            ["min ESS / s", rate, peer_rate, rate / peer_rate],
            ["pm.sample, s", us["wall"], them["wall"], us["wall"] / them["wall"]],
            ["min ESS", us["ess"], them["ess"], us["ess"] / them["ess"]],
            ["worst R-hat", f"{us['rhat']:.4f}", f"{them['rhat']:.4f}", ""],
            ["divergences", us["diverging"], them["diverging"], ""],
            ["mean of sigma", us["sigma"], them["sigma"], us["sigma"] / them["sigma"]],
        ],
    )


# -- two million rows ---------------------------------------------------------------------------


def many_rows(n, d=11, seed=0):
    """Uniform inputs and a smooth function with noise, made block by block."""
    rng = np.random.default_rng(seed)
    X, y = np.empty((n, d)), np.empty(n)
    slope = rng.standard_normal((3, d)) / np.sqrt(d)
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        x = rng.uniform(-np.sqrt(3), np.sqrt(3), (rows.stop - start, d))
        a, b, c = slope @ x.T
        X[rows] = x
        y[rows] = np.sin(2 * a) + b * c + 0.1 * rng.standard_normal(len(x))
    return X, (y - y.mean()) / y.std()


def build_floor(X, rank):
    """Seconds of reading X once, of Phi' Phi over all rows by products A'B, and by products A'A.

    A'B is a general matrix product; A'A uses the symmetry, and costs about half.
    """
    rng = np.random.default_rng(1)
    first = rng.standard_normal((BLOCK, rank))
    second = first.copy()
    count = -(-len(X) // BLOCK)
    total = np.zeros((rank, rank))

    def products(other):
        for _ in range(count):
            np.add(total, first.T @ other, out=total)

    read = seconds(lambda: [X[i : i + BLOCK].sum() for i in range(0, len(X), BLOCK)])
    return read, seconds(lambda: products(second)), seconds(lambda: products(first))


def big(args):
    """All stages at two million rows, in this process."""
    import pymc as pm

    begin = time.perf_counter()
    X, y = many_rows(args.n)
    made = time.perf_counter() - begin
    theta = {"ell": np.full(X.shape[1], 3.0), "eta": 1.0, "sigma": 0.2}
    before, start = peak_memory(), time.perf_counter()
    gp, build = rotated(X, theta, args.rank)
    start_likelihood = time.perf_counter()
    with pm.Model():
        w, sigma = priors(gp.rank, theta["sigma"])
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, weights=w)
        project = time.perf_counter() - start_likelihood
        result = sample(args.draws)
    total = time.perf_counter() - start
    peak = peak_memory()
    read, general, symmetric = build_floor(X, args.rank)
    hand_back(
        made=made, build=build, project=project, total=total, peak=peak, before=before,
        data=X.nbytes + y.nbytes, read=read, general=general, symmetric=symmetric,
        n=len(y), rank=gp.rank, **result,
    )  # fmt: skip


def big_table(args):
    """Run :func:`big` in a fresh process and print it."""
    options = ["--n", args.n, "--rank", args.rank, "--draws", args.draws]
    r = fresh_process(__file__, *options, "--side", "big")
    floor, low = r["general"] + r["read"], r["symmetric"] + r["read"]
    table(
        f"simulated, n = {r['n']}, d = 11, {r['rank']} weights: seconds",
        ["", "GriefGP", "floor", "ours / floor"],
        [
            ["build, floor A'B", r["build"], floor, r["build"] / floor],
            ["build, floor A'A", r["build"], low, r["build"] / low],
            ["projecting y", r["project"], "", ""],
            [f"NUTS, 4 x ({args.draws} + {args.draws})", r["wall"], "", ""],
            ["total", r["total"], "", ""],
        ],
    )
    print(f"data made in {r['made']:.0f} s (not counted), {r['data'] / 1e9:.2f} GB")
    print(f"NUTS: min ESS {r['ess']:.0f}, R-hat {r['rhat']:.4f}, {r['diverging']} divergences")
    print(
        f"peak memory {r['peak'] / 1e9:.2f} GB: {(r['peak'] - r['data']) / 1e9:.2f} GB beyond the "
        f"input, {(r['peak'] - r['before']) / 1e9:.2f} GB beyond input and interpreter"
    )


def main():
    parser = arguments(__doc__, data=True)
    parser.add_argument("--big", action="store_true", help="two million rows instead")
    parser.add_argument("--n", type=int, help="rows (36000; quick: 5000; big: 2049280)")
    parser.add_argument("--rank", type=int, help="rank (1000; quick: 200)")
    parser.add_argument("--draws", type=int, help="draws and tuning steps (1000; quick: 300)")
    parser.add_argument("--side", choices=["ours", "plain", "big"], help="used by the script")
    parser.add_argument("--folder", type=Path, help="used by the script")
    args = parser.parse_args()
    quick_n, full_n = (100_000, 2_049_280) if args.big else (5000, 36_000)
    args.n = args.n or (quick_n if args.quick else full_n)
    args.rank = args.rank or (200 if args.quick else 1000)
    args.draws = args.draws or (300 if args.quick else 1000)
    if args.side:
        return {"ours": ours, "plain": plain, "big": big}[args.side](args)
    return big_table(args) if args.big else small(args)


if __name__ == "__main__":
    main()
