"""Experiments of the KMCG paper (Bartels & Hennig 2020): grids, a sound with gaps, dense kernels.

    python examples/paper_tables/kmcg.py                       # the simulated grids, 10 minutes
    python examples/paper_tables/kmcg.py --parts sound,dense --data DIR [--out PICTURE.png]

Relative errors, averaged over test points, of posterior mean, variance and evidence after P steps, against
the exact solution: by the Kronecker eigendecomposition on grids, by Cholesky on dense sets of up to 4096
rows. "CG" is conjugate gradients on ``(K + noise) a = y``, which spans the same space: only its mean
exists. VFE and FITC have 500 random inducing inputs on grids and sound, and ``sqrt(n P)`` on dense sets,
where that costs as much.
"""

import argparse
import time
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from _kmcg_parts import (
    Grid,
    dense_errors,
    inducing_errors,
    krylov,
    krylov_errors,
    peak_memory,
    sound_curves,
)

import pymc_scalable_gp as sgp

GRIDS = {
    "10 x 10": (10, 10),
    "1000 x 1000": (1000, 1000),
    "100 x 100 x 100": (100, 100, 100),
    "30 x 30 x 30 x 30": (30, 30, 30, 30),
}
SHOWN = (1, 5, 10, 20, 40, 70, 100)
DENSE = {"us_precipitation": 2888, "pumadyn32nm": 4096, "elevators": 4096, "autompg": 196}
NOISE = 1e-3


def curves_table(title, found, steps):
    """Lines of relative errors at some of the steps."""
    shown = [p for p in SHOWN if p <= len(steps)]
    print(f"\n{title}\n{'':18}" + "".join(f"{'P = ' + str(p):>10}" for p in shown))
    for name, curve in found.items():
        if np.ndim(curve) == 0:
            print(f"{name:18}" + f"{curve:>10.3g}")
        else:
            print(f"{name:18}" + "".join(f"{curve[p - 1]:>10.3g}" for p in shown))


def grids(args, pictures):
    """Simulated grids."""
    names = ["10 x 10"] if args.quick else list(GRIDS)
    for name in names:
        grid = Grid(GRIDS[name], NOISE, seed=args.seed)
        start = time.perf_counter()
        basis = krylov(grid.factors, grid.y, min(args.steps, grid.n))
        seconds = time.perf_counter() - start
        exact = grid.exact()
        found = krylov_errors(basis, grid.project(basis.Q), exact, grid.n, NOISE)
        start = time.perf_counter()
        count = min(500, grid.n // 2)
        found |= inducing_errors(grid.blocks, grid.test, count, exact, grid.n, NOISE, args.seed)
        other = time.perf_counter() - start
        title = (
            f"{name}: n = {grid.n}; {len(basis.alpha)} steps {seconds:.1f} s, {count} inducing inputs "
            f"{other:.1f} s; peak {peak_memory():.2f} GB, basis {basis.Q.nbytes / 1e9:.2f} GB"
        )
        curves_table(title, found, basis.alpha)
        first = slice(0, 40)
        ratio = found["mean, KMCG"][first].mean() / found["mean, CG"][first].mean()
        print(f"mean error over the first 40 steps, KMCG / CG: {ratio:.2f}")
        pictures.append((name, found))


def sound(args, pictures):
    """The sound with missing stretches: error by steps and seconds, then MAP and NUTS."""
    data = np.load(find_file(args.data, "sound"), allow_pickle=False)
    found = sound_curves(data, args.seed)
    curves_table(f"sound: SMSE, n = {len(data['x_train'])}", found, np.arange(100))
    pictures.append(("sound, SMSE", found))
    grid, order = sgp.RegularGrid.from_points(data["x_train"])
    y = data["y_train"].ravel()[order]
    with pm.Model():
        ell, eta = pm.LogNormal("ell", np.log(10), 0.5), pm.LogNormal("eta", np.log(0.07), 0.5)
        sigma = pm.LogNormal("sigma", np.log(0.01), 0.5)
        gp = sgp.KMCGMarginal(
            cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ell), n_iter=args.nuts_steps, probes=2
        )
        gp.marginal_likelihood("y", X=grid, y=y, sigma=sigma)
        start = time.perf_counter()
        best = pm.find_MAP(progressbar=False)
        spent = time.perf_counter() - start
        mean = gp.predict(data["x_test"].reshape(-1, 1), best, diag=True)[0]
        print("MAP " + ", ".join(f"{k} {float(best[k]):.4g}" for k in ("ell", "eta", "sigma"))
              + f", {spent:.0f} s, SMSE {smse(data, mean):.4f}")  # fmt: skip
        if args.draws:
            sample(best, args)


def sample(best, args):
    """NUTS from the best point, for the model in context."""
    start = time.perf_counter()
    idata = pm.sample(
        args.draws, tune=args.draws, chains=2, cores=2, random_seed=args.seed, initvals=best,
        init="adapt_diag",
        progressbar=False, compute_convergence_checks=False,
    )  # fmt: skip
    spent = time.perf_counter() - start
    print(az.summary(idata, var_names=["ell", "eta", "sigma"]))
    diverging = int(idata["sample_stats"]["diverging"].sum())
    print(f"NUTS 2 x ({args.draws} + {args.draws}): {spent:.0f} s, {diverging} divergences")


def smse(data, mean):
    """Squared error over the targets' variance."""
    target = data["y_test"].ravel()
    return np.mean((target - mean) ** 2) / np.var(target)


def dense(args, pictures):
    """Scattered rows, hyperparameters at the exact GP's best on at most 1000 of them."""
    for name, rows in DENSE.items():
        found, wins = dense_errors(find_file(args.data, name), rows, args.steps, args.seed)
        curves_table(f"{name}: n = {rows}", found, np.arange(args.steps))
        print("lower error at P = 100: " + ", ".join(f"{k}: {v}" for k, v in wins.items()))
        pictures.append((name, found))


def find_file(folder, name):
    """NAME.npz in the folder, or in its uci or other part."""
    for part in (".", "uci", "other"):
        path = Path(folder) / part / f"{name}.npz"
        if path.exists():
            return path
    raise SystemExit(f"there is no {name}.npz in {folder}")


def draw(pictures, path):
    """Curves of all experiments."""
    import matplotlib.pyplot as plt

    columns = min(4, len(pictures))
    rows = -(-len(pictures) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4 * columns, 3.4 * rows), squeeze=False, layout="constrained"
    )
    for axis, (name, found) in zip(axes.ravel(), pictures, strict=False):
        for label, curve in found.items():
            if not label.startswith(("mean", "SMSE")):
                continue
            if np.ndim(curve):
                axis.semilogy(np.arange(1, len(curve) + 1), curve, label=label.split(", ")[-1])
            else:
                style = ":" if "FITC" in label else "--"
                axis.axhline(curve, ls=style, color="0.4", label=label.split(", ")[-1])
        axis.set(title=name, xlabel="steps P", ylabel="relative error")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    for axis in axes.ravel()[len(pictures) :]:
        axis.axis("off")
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--parts", default="grids", help="comma-separated: grids, sound, dense")
    add("--data", help="folder with sound.npz and the dense sets")
    add("--steps", type=int, default=100)
    add("--nuts-steps", type=int, default=30, help="steps while hyperparameters are sampled")
    add("--draws", type=int, default=150, help="tuning steps and draws of 2 chains; 0: no NUTS")
    add("--quick", action="store_true", help="the 10 x 10 grid only")
    add("--seed", type=int, default=0)
    add("--out", help="write the curves to this PNG file")
    args = parser.parse_args()
    parts, pictures = args.parts.split(","), []
    if args.data is None and parts != ["grids"]:
        raise SystemExit("sound and dense need --data DIR")
    for part in parts:
        {"grids": grids, "sound": sound, "dense": dense}[part](args, pictures)
    if args.out:
        draw(pictures, args.out)


if __name__ == "__main__":
    main()
