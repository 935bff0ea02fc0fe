"""Posteriors of lengthscales, eta and sigma by NUTS: GriefGP against the exact pm.gp.Marginal.

    python tests/benchmarks/bench_posterior.py [--quick]
    python tests/benchmarks/bench_posterior.py --data DIR [--out PICTURE.png]

First on simulated problems with 2 and 3 inputs, where a few hundred eigenfunctions hold nearly all
of the kernel: the means should agree within Monte Carlo error (z: difference over its standard
error), the standard deviations within 10%. Then, with --data, on 300 rows of concrete (8 inputs):
how far each posterior mean is from the exact one, in posterior standard deviations, by rank.
"""

import time

import numpy as np
from _common import arguments, regression, table

N = 300


def simulate(ell, seed):
    """N rows of a Gaussian process with eta = 1, sigma = 0.2, at uniform inputs."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-np.sqrt(3), np.sqrt(3), (N, len(ell)))
    squares = (((X[:, None] - X) / ell) ** 2).sum(axis=-1)
    cov = np.exp(-0.5 * squares) + 0.2**2 * np.eye(N)
    return X, np.linalg.cholesky(cov) @ rng.standard_normal(N)


def low_rank(X, y, cov, sigma, start, rank, approx, grid):
    """GriefGP; above N features the same density by N x N matrices, which are then smaller."""
    import pymc as pm
    import pytensor.tensor as pt

    import pymc_scalable_gp as sgp

    gp = sgp.GriefGP(cov_func=cov, approx=approx, grid=grid, rank=rank)
    gp.build(X, point=start)
    if rank <= N:
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    else:
        phi = gp.features(X)
        missed = pt.maximum(cov(X, diag=True) - (phi**2).sum(axis=1), 0.0)
        noise = sigma**2 + (missed if approx == "FITC" else pt.zeros(N))
        pm.MvNormal("y", np.zeros(N), cov=phi @ phi.T + pt.diag(noise), observed=y)
    return 100 * gp.check(start, X, progressbar=False).attrs["missing_mean"]


def posterior(X, y, args, start=None, **options):
    """Draws of all parameters by name, seconds, start values, per cent of variance missed."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    d, missed = X.shape[1], 0.0
    with pm.Model():
        ell = pm.LogNormal("ell", 1.0, 1.0, shape=d)
        eta = pm.LogNormal("eta", 0.0, 1.0)
        sigma = pm.LogNormal("sigma", -1.5, 1.0)
        cov = eta**2 * pm.gp.cov.ExpQuad(d, ls=ell)
        exact = pm.gp.Marginal(cov_func=cov)
        if start is None:
            start = sgp.subset_map(exact, X, y, sigma, progressbar=False)
        if options:
            missed = low_rank(X, y, cov, sigma, start, **options)
        else:
            exact.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        begin = time.perf_counter()
        idata = pm.sample(
            args.draws, tune=args.tune, chains=args.chains, initvals=start,
            random_seed=2 if options else 1, progressbar=False,
        )  # fmt: skip
        spent = time.perf_counter() - begin
    draws = {f"ell[{j}]": idata.posterior["ell"].values[..., j] for j in range(d)}
    draws |= {name: idata.posterior[name].values for name in ("eta", "sigma")}
    return draws, spent, start, missed


def moments(draws):
    """Mean, standard deviation, Monte Carlo standard error."""
    import arviz as az

    sd = draws.std(ddof=1)
    return draws.mean(), sd, sd / np.sqrt(float(az.ess(draws, method="mean")))


def agreement(args):
    """Table of the simulated problems."""
    problems = [((0.7, 1.2), 150, 20), ((1.2, 1.8, 2.5), 250, 15)]
    rows, far, ratios = [], [], []
    for ell, rank, grid in problems[: 1 if args.quick else 2]:
        X, y = simulate(np.array(ell), seed=len(ell))
        exact, exact_spent, start, _ = posterior(X, y, args)
        low, spent, _, missed = posterior(
            X, y, args, start, rank=rank, approx="FITC", grid=grid
        )  # fmt: skip
        for name in exact:
            (m, s, e), (mx, sx, ex) = moments(low[name]), moments(exact[name])
            far.append(abs(m - mx) / np.hypot(e, ex))
            ratios.append(s / sx)
            rows.append([f"{len(ell)}-D {name}", m, mx, m / mx, far[-1], s, sx, ratios[-1]])
        rows.append([f"{len(ell)}-D seconds", spent, exact_spent, spent / exact_spent, "", "", "", ""])
        print(f"{len(ell)}-D: rank {rank} misses {missed:.2g}% of the prior variance")
    table(
        f"n = {N}, FITC, {args.chains} x ({args.tune} + {args.draws}) draws",
        ["", "mean", "exact", "ratio", "z", "sd", "exact", "ratio"],
        rows,
    )
    print(f"largest z {max(far):.2f} of {len(far)}; sd ratios {min(ratios):.3f} to {max(ratios):.3f}")


def by_rank(args):
    """Table and picture of concrete."""
    X, y, _ = regression(args.data, N, "concrete")
    ranks = (100,) if args.quick else (100, 200, 300, 500, 1000, 2000)
    exact, exact_spent, start, _ = posterior(X, y, args)
    shifts, rows = {"DTC": [], "FITC": []}, []
    for rank in ranks:
        for approx in shifts:
            low, spent, _, missed = posterior(
                X, y, args, start, rank=rank, approx=approx, grid=10
            )  # fmt: skip
            shift = {k: (low[k].mean() - v.mean()) / v.std(ddof=1) for k, v in exact.items()}
            shifts[approx].append(shift)
            ells = np.abs([v for k, v in shift.items() if k.startswith("ell")])
            rows.append(
                [f"{approx}, rank {rank}", missed, shift["sigma"], shift["eta"], np.median(ells),
                 ells.max(), low["sigma"].mean(), exact["sigma"].mean(), spent, exact_spent]
            )  # fmt: skip
    error = max(moments(v)[2] / v.std() for v in exact.values())
    table(
        f"concrete, n = {N}, d = 8: shift of posterior means from the exact ones, in exact posterior "
        f"sds (Monte Carlo error about {np.sqrt(2) * error:.2f})",
        ["", "missed %", "sigma", "eta", "ell, median", "ell, worst", "sigma", "exact",
         "s", "exact s"],
        sorted(rows, key=lambda row: row[0].startswith("FITC")),
    )  # fmt: skip
    if args.out:
        picture(args.out, ranks, shifts)


def picture(out, ranks, shifts):
    """Shift of every mean against rank, one panel for each approximation."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for ax, (approx, found) in zip(axes, shifts.items(), strict=True):
        for name in found[0]:
            style = {"sigma": "C1s-", "eta": "k^--"}.get(name, "C0.-")
            label = "ell, each input" if name == "ell[0]" else None if "[" in name else name
            ax.plot(ranks, [s[name] for s in found], style, lw=1, label=label)
        ax.axhspan(-1, 1, color="0.9", zorder=0)
        ax.set(xscale="log", xlabel="rank", title=approx, yscale="symlog")
        ax.set_xticks(ranks, [str(r) for r in ranks])
        marks = (-1, 0, 1, 3, 10)
        ax.set_yticks(marks, [str(mark) for mark in marks])
        ax.minorticks_off()
    axes[0].set(ylabel="shift of the posterior mean (exact posterior sds)")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    fig.suptitle(f"concrete, {N} rows, 8 inputs: low rank against exact")
    fig.savefig(out, dpi=110)
    print(f"wrote {out}")


def main():
    parser = arguments(__doc__, data=True, out=True)
    parser.add_argument("--only", choices=["simulated", "concrete"], help="one part")
    parser.add_argument("--draws", type=int, help="draws per chain (500; concrete 300; --quick less)")
    args = parser.parse_args()
    wanted = args.draws
    if args.only != "concrete":
        args.chains = 2 if args.quick else 4
        args.draws = args.tune = wanted or (300 if args.quick else 500)
        agreement(args)
    if args.only != "simulated":
        if args.data is None:
            print("concrete: left out (give --data DIR)")
            return
        args.chains = 2
        args.draws = args.tune = wanted or (150 if args.quick else 300)
        by_rank(args)


if __name__ == "__main__":
    main()
