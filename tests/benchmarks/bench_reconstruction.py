"""How well p basis functions reconstruct a covariance matrix in 100 dimensions.

    python tests/benchmarks/bench_reconstruction.py [--quick] [--out PICTURE.png]

The set-up of figure 2 of Evans and Nair (2018): 5000 points uniform on (-sqrt(3), sqrt(3))^100, half
of them for training, squared-exponential kernel, 100 grid points in each dimension. The paper does
not give the lengthscale; it is 10 = sqrt(d) here, unless --ell says otherwise. Error: Frobenius norm
of the difference over that of the matrix, for the training points and for all points. "Optimal": the
eigendecomposition of the matrix in question, which no method can beat. Nystrom (p training points
drawn uniformly) and random Fourier features are averaged over --repeats draws.
"""

import numpy as np
from _common import arguments, seconds, table
from scipy.linalg import eigvalsh, solve_triangular

D = 100


def kernel(A, B, ell):
    """Squared-exponential covariance matrix."""
    squares = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1) - 2.0 * A @ B.T
    return np.exp(-0.5 * np.maximum(squares, 0.0) / ell**2)


def grief(X, train, ell, ranks):
    """Features of the leading eigenfunctions, for the largest rank; the first p are those of p."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(D, ls=ell), grid=100, rank=max(ranks))
    gp.build(X[train])
    return gp.features(X).eval()


def nystrom(X, train, ell, p, rng):
    """Nystrom features from p training points."""
    Z = X[train][rng.permutation(len(X[train]))[:p]]
    factor = np.linalg.cholesky(kernel(Z, Z, ell) + 1e-10 * np.eye(p))
    return solve_triangular(factor, kernel(Z, X, ell), lower=True).T


def fourier(X, ell, p, rng):
    """Random Fourier features: p / 2 frequencies."""
    angles = X @ (rng.standard_normal((D, p // 2)) / ell)
    return np.hstack([np.cos(angles), np.sin(angles)]) * np.sqrt(2.0 / p)


def errors(K, phi, train):
    """Relative Frobenius error on the training points and on all points."""
    difference = phi @ phi.T
    np.subtract(K, difference, out=difference)
    norm = np.linalg.norm
    return norm(difference[train, train]) / norm(K[train, train]), norm(difference) / norm(K)


def optimal(K, ranks):
    """Relative error of the best approximation of each rank."""
    tail = np.cumsum(eigvalsh(K) ** 2)  # increasing eigenvalues: what the first n - p leave
    return {p: np.sqrt(tail[-p - 1] / tail[-1]) for p in ranks}


def main():
    parser = arguments(__doc__, out=True)
    parser.add_argument("--n", type=int, help="points (5000; quick: 1000)")
    parser.add_argument("--ell", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, help="draws of the random methods (5; quick: 2)")
    args = parser.parse_args()
    n = args.n or (1000 if args.quick else 5000)
    repeats = args.repeats or (2 if args.quick else 5)
    rng = np.random.default_rng(0)
    X = rng.uniform(-np.sqrt(3), np.sqrt(3), (n, D))
    train = slice(0, n // 2)
    ranks = [p for p in (10, 30, 100, 200, 500, 1000, 2000) if p < n // 2]
    K = kernel(X, X, args.ell)
    best = {"training points": optimal(K[train, train], ranks), "all points": optimal(K, ranks)}
    found = {}

    def ours():
        found["phi"] = grief(X, train, args.ell, ranks)

    spent = seconds(ours)
    results = {}
    for p in ranks:
        results["GRIEF", p] = errors(K, found["phi"][:, :p], train)
        for name, draw in [
            ("Nystrom", lambda p=p: nystrom(X, train, args.ell, p, rng)),
            ("Fourier", lambda p=p: fourier(X, args.ell, p, rng)),
        ]:
            results[name, p] = np.mean(
                [errors(K, draw(), train) for _ in range(repeats)], axis=0
            )  # fmt: skip
    for k, (where, limit) in enumerate(best.items()):
        rows = []
        for p in ranks:
            e, peers = results["GRIEF", p][k], [results[m, p][k] for m in ("Nystrom", "Fourier")]
            rows.append([f"p = {p}", e, limit[p], e / limit[p], *peers, e / min(peers)])
        table(
            f"{where}: relative error, d = {D}, n = {n} (half for training), ell = {args.ell:g}",
            ["", "GRIEF", "optimal", "GRIEF / optimal", "Nystrom", "Fourier", "GRIEF / best peer"],
            rows,
        )
    print(f"GRIEF features of rank {max(ranks)} at {n} points: {spent:.1f} s, compilation included")
    if args.out:
        picture(args.out, ranks, results, best)


def picture(out, ranks, results, best):
    """Error against p, as in the paper."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for k, (ax, (where, limit)) in enumerate(zip(axes, best.items(), strict=True)):
        for name, style in [("Fourier", "C2^-"), ("Nystrom", "C1s-"), ("GRIEF", "C0o-")]:
            label = {"Fourier": "random Fourier features", "Nystrom": "Nyström, uniform"}
            errs = [results[name, p][k] for p in ranks]
            ax.plot(ranks, errs, style, ms=4, label=label.get(name, name))
        ax.plot(ranks, [limit[p] for p in ranks], "k-", lw=1, label="optimal")
        ax.set(xscale="log", yscale="log", xlabel="basis functions p", title=where)
    axes[0].set(ylabel="relative Frobenius error")
    axes[0].legend(frameon=False)
    fig.savefig(out, dpi=110)
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
