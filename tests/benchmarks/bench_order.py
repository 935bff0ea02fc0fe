"""Order and neighbours of "VIF": how far its log density lies from the exact one over posterior draws.

    python tests/benchmarks/bench_order.py --data DIR [--draws N]

Subsets of 500 and 2000 rows of UCI sets, Matern 5/2 with a lengthscale for each input, 64 inducing points,
30 neighbours, blocks of 16 rows. Order and neighbours are chosen once, at the posterior mean; a constant
difference would not matter, hence the standard deviation over draws, in nats. In dense linear algebra:

* as it is: blocks in random order, neighbours by scaled distance, points by pivoted Cholesky;
* maximin: each block the farthest from those before it;
* correlation: neighbours by the largest correlation of the residual with a row of the block;
* greedy: each next neighbour is the one, of four times as many, that leaves the block the least variance;
* latent: the residual is regressed without its noise, which is added to the sparse covariance;
* 200 points: in place of 64.
"""

import numpy as np
from _common import arguments, regression, table
from bench_importance import logs, model_of
from scipy import linalg
from scipy.spatial.distance import cdist

POINTS, NEIGHBORS, BLOCK, CANDIDATES = 64, 30, 16, 120
SETS = {"concrete": (500, 900), "kin40k": (500, 2000), "protein": (500, 2000)}


def matern52(X, Z, ell, eta):
    """Kernel matrix."""
    r = np.sqrt(5.0) * cdist(X / ell, Z / ell)
    return eta**2 * (1.0 + r + r**2 / 3.0) * np.exp(-r)


def pivots(K, count):
    """Rows that a pivoted Cholesky factor takes first."""
    left, columns, chosen = np.diag(K).copy(), np.zeros((0, len(K))), []
    for _ in range(count):
        j = int(np.argmax(left))
        new = (K[j] - columns[:, j] @ columns) / np.sqrt(left[j])
        columns, chosen = np.vstack([columns, new]), [*chosen, j]
        left = np.maximum(left - new**2, 0.0)
    return np.array(chosen)


def features(K, points):
    """Features (m, n) from inducing rows."""
    root = np.linalg.cholesky(K[np.ix_(points, points)] + 1e-8 * K[0, 0] * np.eye(len(points)))
    return linalg.solve_triangular(root, K[points], lower=True)


def residual_of(K, points):
    """What the features miss."""
    phi = features(K, points)
    return K - phi.T @ phi, phi


def maximin(placed, order):
    """Blocks of an order, each the farthest from those before it."""
    full = len(order) // BLOCK
    centers = np.stack([placed[order[b * BLOCK : (b + 1) * BLOCK]].mean(axis=0) for b in range(full)])
    chosen = [int(np.argmin(((centers - centers.mean(axis=0)) ** 2).sum(axis=1)))]
    nearest = cdist(centers, centers[chosen])[:, 0]
    while len(chosen) < full:
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, cdist(centers, centers[chosen[-1:]])[:, 0])
    rows = [order[b * BLOCK : (b + 1) * BLOCK] for b in chosen]
    return np.concatenate([*rows, order[full * BLOCK :]])


def neighbors_by(closeness, order, greedy=None):
    """Neighbours of each block: the rows before it that are closest to one of its rows.

    With `greedy`, a covariance, those of four times as many that leave the least conditional variance.
    """
    found = []
    for start in range(0, len(order), BLOCK):
        own, before = order[start : start + BLOCK], order[:start]
        best = closeness[np.ix_(before, own)].max(axis=1) if start else np.empty(0)
        count = NEIGHBORS if greedy is None else CANDIDATES
        near = before[np.argsort(-best, kind="stable")[:count]]
        found.append(near if greedy is None else forward(greedy, near, own))
    return found


def forward(C, near, own):
    """Greedy forward selection: most of the own rows' log determinant at each step."""
    rows = np.concatenate([near, own])
    left, chosen, m = C[np.ix_(rows, rows)].copy(), [], len(near)
    while len(chosen) < min(NEIGHBORS, m):
        root = np.linalg.cholesky(left[m:, m:])
        half = linalg.solve_triangular(root, left[m:, :m], lower=True)
        gain = (half**2).sum(axis=0) / np.maximum(np.diag(left)[:m], 1e-12)
        gain[chosen] = -1.0
        j = int(np.argmax(gain))
        chosen.append(j)
        left = left - np.outer(left[:, j], left[j]) / left[j, j]
    return near[chosen]


def precision_root(S, order, near):
    """Rows (n, n) that whiten under block Vecchia, and half the log determinant of the covariance."""
    W, half = np.zeros_like(S), 0.0
    for b, start in enumerate(range(0, len(order), BLOCK)):
        own, given = order[start : start + BLOCK], near[b]
        slope = np.zeros((len(own), len(given)))
        cov = S[np.ix_(own, own)]
        if len(given):
            slope = np.linalg.solve(S[np.ix_(given, given)], S[np.ix_(given, own)]).T
            cov = cov - slope @ S[np.ix_(given, own)]
        root = np.linalg.cholesky(cov)
        half += np.log(np.diag(root)).sum()
        rows = np.zeros((len(own), len(S)))
        rows[np.arange(len(own)), own] = 1.0
        rows[:, given] -= slope
        W[start : start + len(own)] = linalg.solve_triangular(root, rows, lower=True)
    return W, half


def normal_logp(cov, y):
    """Dense."""
    root = np.linalg.cholesky(cov)
    white = linalg.solve_triangular(root, y, lower=True)
    return -0.5 * (white @ white + len(y) * np.log(2 * np.pi)) - np.log(np.diag(root)).sum()


def vif_logp(K, noise, y, points, order, near, latent=False):
    """Features plus block Vecchia of the residual, with its noise or without."""
    R, phi = residual_of(K, points)
    own = 1e-6 * K[0, 0] if latent else noise
    W, half = precision_root(R + own * np.eye(len(y)), order, near)
    if latent:
        inverse = np.linalg.inv(W.T @ W)
        return normal_logp(inverse + noise * np.eye(len(y)) + phi.T @ phi, y)
    whitened, target = W @ phi.T, W @ y
    B = np.eye(len(phi)) + whitened.T @ whitened
    root = np.linalg.cholesky(B)
    cross = linalg.solve_triangular(root, whitened.T @ target, lower=True)
    quad = target @ target - cross @ cross
    return -0.5 * (quad + len(y) * np.log(2 * np.pi)) - half - np.log(np.diag(root)).sum()


def variants(X, draws):
    """Points, order and neighbours by name, chosen at the posterior mean."""
    from pymc_scalable_gp.core.vecchia.neighbors import cut

    ell, eta, sigma = draws
    K, placed = matern52(X, X, ell, eta), X / ell
    points, many = pivots(K, POINTS), pivots(K, min(200, len(X) // 2))
    order = cut(placed, BLOCK)
    full = len(order) // BLOCK * BLOCK
    blocks = np.random.default_rng(0).permutation(full // BLOCK)
    order = np.concatenate([order[:full].reshape(-1, BLOCK)[blocks].ravel(), order[full:]])
    apart, far = -cdist(placed, placed), maximin(placed, order)
    R = residual_of(K, points)[0]
    S, sd = R + sigma**2 * np.eye(len(X)), np.sqrt(np.maximum(np.diag(R), 1e-12))
    alike, near = np.abs(R) / np.outer(sd, sd), neighbors_by(apart, order)
    greedy = neighbors_by(apart, order, S)
    best = neighbors_by(apart, far, S)
    return {
        "as it is": (points, order, near, False),
        "maximin": (points, far, neighbors_by(apart, far), False),
        "correlation": (points, order, neighbors_by(alike, order), False),
        "greedy": (points, order, greedy, False),
        "maximin, greedy": (points, far, best, False),
        "latent": (points, order, near, True),
        "latent, greedy": (points, order, greedy, True),
        "200 points": (many, order, near, False),
    }


def row(name, n, X, y, draws):
    """Standard deviations of the difference over draws, by variant."""
    mean = draws.mean(axis=0)
    ways = variants(X, (np.exp(mean[:-2]), np.exp(mean[-2]), np.exp(mean[-1])))
    found = {way: [] for way in ways}
    for draw in draws:
        ell, eta, noise = np.exp(draw[:-2]), np.exp(draw[-2]), np.exp(2.0 * draw[-1])
        K = matern52(X, X, ell, eta)
        exact = normal_logp(K + noise * np.eye(n), y)
        for way, settings in ways.items():
            found[way].append(vif_logp(K, noise, y, *settings) - exact)
    return [name, n, *(f"{np.std(each, ddof=1):.2f}" for each in found.values())], list(ways)


def main():
    """Print the table."""
    parser = arguments(__doc__, data=True)
    parser.add_argument("--draws", type=int, default=25)
    args = parser.parse_args()
    import pymc as pm

    import pymc_scalable_gp as sgp

    rows = []
    for name, sizes in SETS.items():
        for n in sizes[:1] if args.quick else sizes:
            X, y, _ = regression(args.data, n, name)
            model, _ = model_of(pm, sgp, X, y)
            idata = sgp.sample_importance(model=model, progressbar=False, random_seed=1)
            draws = logs(idata)
            chosen = np.linspace(0, len(draws) - 1, args.draws).astype(int)
            line, names = row(name, len(y), X, y, draws[chosen])
            rows.append(line)
    table("Standard deviation of (VIF - exact) log densities", ["set", "rows", *names], rows)


if __name__ == "__main__":
    main()
