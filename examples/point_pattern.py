"""Point patterns as counts of cells: a log-Gaussian Cox process by SKIPLatent, next to HSGP.

python examples/point_pattern.py [--data FILE.npz] [--parts plane,time] [--out FOLDER]

"plane" takes positions (xy, n x 2), such as the hickory trees, or simulates some: Poisson counts on a
60 x 60 raster, the log intensity a Gaussian process of two inputs, sampled by NUTS with SKIPLatent and
with pm.gp.HSGP. "time" takes positions and days (crime, n x 3): negative binomial counts in space and
time, three inputs. About four minutes.
"""

import argparse
import time
from pathlib import Path

import arviz as az
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from reporting import chains

import pymc_scalable_gp as sgp

CELLS = 60


def simulate(rng):
    """Points of a bumpy intensity on the unit square."""
    points = rng.uniform(size=(6000, 2))
    rate = np.exp(1.5 * np.sin(7 * points[:, 0]) * np.cos(5 * points[:, 1]))
    return points[rng.uniform(size=6000) < rate / rate.max()]


def raster(points, cells):
    """Centres of the cells, scaled to [-1, 1], and counts."""
    edges = [np.linspace(x.min(), x.max(), k + 1) for x, k in zip(points.T, cells, strict=True)]
    counts = np.histogramdd(points, edges)[0].astype(int)
    centres = [np.linspace(-1 + 1 / k, 1 - 1 / k, k) for k in cells]
    X = np.stack(np.meshgrid(*centres, indexing="ij"), axis=-1).reshape((-1, len(cells)))
    return X, counts


def sample(args, seed):
    """NUTS in the model context; prints what tells whether the chains can be trusted.

    Counts bind the coefficients together: a mass matrix that is not diagonal pays many times over.
    """
    start = time.perf_counter()
    idata = pm.sample(
        args.draws, tune=args.tune, chains=2, random_seed=seed, target_accept=0.95,
        nuts_sampler="nutpie", nuts={"adaptation": args.adaptation}, compute_convergence_checks=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    posterior = idata["posterior"].to_dataset()
    names = [name for name in posterior if name not in ("f",) and "coeffs" not in name]
    print(az.summary(idata, var_names=names, kind="stats").to_string())
    print(f"NUTS {seconds:.0f} s")
    chains(idata, [*names, "f"])
    return posterior, seconds


def plane(points, args):
    """Two inputs: SKIP and HSGP."""
    X, counts = raster(points, (CELLS, CELLS))
    rate = np.log(counts.mean())
    found = {}
    for name in ("SKIP", "HSGP"):
        with pm.Model():
            ell, eta = pm.InverseGamma("ell", 5, 1.5), pm.HalfNormal("eta", 1.5)
            cov = eta**2 * pm.gp.cov.ExpQuad(2, ls=ell)
            if name == "SKIP":
                gp = sgp.SKIPLatent(cov_func=cov, rank=args.rank)
                gp.build(X, point={"ell": 0.3, "eta": 1.0})
            else:
                gp = pm.gp.HSGP(m=[args.rank] * 2, L=[1.3, 1.3], cov_func=cov)
            f = gp.prior("f", X=X)
            center = pm.Normal("center", rate, 1)
            pm.Poisson("counts", pm.math.exp(center + f), observed=counts.ravel())
            print(f"\n{name}: {len(points)} points, {counts.size} cells, {args.rank}^2 coefficients")
            found[name] = sample(args, 1)
    surface = {
        name: (posterior["f"] + posterior["center"]).stack(s=("chain", "draw"))
        for name, (posterior, _) in found.items()
    }
    mean = {name: s.mean("s").values for name, s in surface.items()}
    error = {
        name: s.std("s").values / np.sqrt(az.ess(found[name][0][["f"]])["f"].values)
        for name, s in surface.items()
    }
    off = np.abs(mean["SKIP"] - mean["HSGP"]) / np.hypot(error["SKIP"], error["HSGP"])
    print(
        f"mean surfaces differ by {np.median(off):.2f} Monte Carlo errors in the median, and by "
        f"{np.mean(off < 3):.0%} of the cells within 3; seconds SKIP / HSGP: "
        f"{found['SKIP'][1] / found['HSGP'][1]:.2f}"
    )
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.2), constrained_layout=True)
    panels[0].imshow(counts.T, origin="lower", cmap="Greys")
    panels[0].set_title("counts")
    for panel, name in zip(panels[1:], mean, strict=True):
        image = panel.imshow(np.exp(mean[name]).reshape(CELLS, CELLS).T, origin="lower")
        panel.set_title(f"intensity, {name}")
        figure.colorbar(image, ax=panel)
    for panel in panels:
        panel.set(xticks=[], yticks=[])
    save(figure, args.out / "cox.png")


def space_time(points, args):
    """Three inputs: counts on a coarse raster by time, negative binomial."""
    cells = (20, 20, 12)
    low, high = np.quantile(points, [0.01, 0.99], axis=0)
    points = points[((points >= low) & (points <= high)).all(axis=1)]
    X, counts = raster(points, cells)
    inside = np.repeat(counts.sum(axis=2).ravel() > 0, cells[2])  # cells that ever had an event
    X, y = X[inside], counts.ravel()[inside]
    with pm.Model():
        ell, eta = pm.InverseGamma("ell", 5, 2, shape=3), pm.HalfNormal("eta", 1.5)
        gp = sgp.SKIPLatent(cov_func=eta**2 * pm.gp.cov.ExpQuad(3, ls=ell), rank=args.rank)
        gp.build(X, point={"ell": np.array([0.3, 0.3, 0.5]), "eta": 1.0})
        f = gp.prior("f", X=X)
        center, alpha = pm.Normal("center", np.log(y.mean()), 1), pm.HalfNormal("alpha", 20)
        pm.NegativeBinomial("counts", mu=pm.math.exp(center + f), alpha=alpha, observed=y)
        print(f"\nspace and time: {len(points)} events, {len(y)} cells, {gp.rank} coefficients")
        posterior, _ = sample(args, 2)
        print(gp.check(posterior, progressbar=False))
    intensity = np.full(counts.size, np.nan)
    intensity[inside] = np.exp((posterior["f"] + posterior["center"]).mean(("chain", "draw")))
    intensity = intensity.reshape(cells)
    figure, panels = plt.subplots(1, 4, figsize=(12, 3), constrained_layout=True)
    for panel, k in zip(panels, (1, 4, 7, 10), strict=True):
        image = panel.imshow(intensity[:, :, k].T, origin="lower", vmin=0, vmax=np.nanmax(intensity))
        panel.set(title=f"period {k + 1} of {cells[2]}", xticks=[], yticks=[])
    figure.colorbar(image, ax=panels)
    save(figure, args.out / "space_time.png")


def save(figure, path):
    """Write the picture and say where."""
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
    print(f"wrote {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--data", help="NPZ file with xy (n x 2), or crime (n x 3) for the part in time")
    add("--parts", default="plane", help="comma-separated: plane, time")
    add("--rank", type=int, default=12)
    add("--draws", type=int, default=300, help="draws of each of 2 chains")
    add("--tune", type=int, default=300, help="tuning steps before them")
    add("--adaptation", default="low_rank", choices=["low_rank", "diag"], help="mass matrix")
    add("--out", type=Path, default=Path("."), help="folder of the pictures")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    data = {} if args.data is None else dict(np.load(args.data, allow_pickle=False))
    for part in args.parts.split(","):
        if part == "plane":
            plane(np.asarray(data["xy"], float) if "xy" in data else simulate(rng), args)
        elif "crime" in data:
            space_time(np.asarray(data["crime"], float), args)
        else:
            raise SystemExit("the part in time needs --data FILE with crime")


if __name__ == "__main__":
    main()
