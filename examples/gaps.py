"""Regular data with gaps, filled in with uncertainty: monthly CO2, and a raster with missing cells.

python examples/gaps.py [--data FILE.npz] [--parts co2,raster] [--out FOLDER]

"co2" takes a file with x (years) and y (ppm), such as the series of Mauna Loa, or simulates one: a
trend and a season, two Gaussian processes of one sum, with forecasts. "raster" simulates a rough
surface, hides 30% of its cells and predicts them. Both sample all hyperparameters with NUTS, on the
structure of the grid. Five to ten minutes each.
"""

import argparse
import logging
import time
from pathlib import Path

import arviz as az
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from reporting import chains, coverage
from scipy.interpolate import griddata

import pymc_scalable_gp as sgp


def simulate_co2(rng):
    """Months with gaps, and a series that looks like the one of Mauna Loa."""
    x = 1958.0 + (np.arange(45 * 12) + 0.5) / 12
    t = x - x[0]
    season = 3.0 * np.sin(2 * np.pi * x) + np.sin(4 * np.pi * x + 0.6)
    keep = np.sort(rng.permutation(len(x))[: int(0.97 * len(x))])
    y = 315 + 0.8 * t + 0.012 * t**2 + season + 0.3 * rng.standard_normal(len(x))
    return x[keep], y[keep]


def report(idata, seconds):
    """Summary and what tells whether the chains can be trusted."""
    print(az.summary(idata, kind="stats").to_string())
    print(f"NUTS {seconds:.0f} s")
    chains(idata)


def sample(draws, seed):
    """NUTS in the model context, timed."""
    start = time.perf_counter()
    idata = pm.sample(draws, tune=draws, chains=2, random_seed=seed, compute_convergence_checks=False)
    return idata, time.perf_counter() - start


def co2(path, draws, out, rng):
    """Trend and season of a monthly series, with a forecast of ten years."""
    if path is None:
        x, y = simulate_co2(rng)
    else:
        with np.load(path, allow_pickle=False) as file:
            x, y = file["x"].ravel().astype(float), file["y"].ravel().astype(float)
    last = x > x.max() - 5.0  # five years are held out
    # The GPs model what departs from a quadratic, which carries the trend into the future.
    quadratic = np.polynomial.Polynomial.fit(x[~last], y[~last], 2)
    rest = y[~last] - quadratic(x[~last])
    scale = rest.std()
    grid, order = sgp.RegularGrid.from_points(x[~last])
    target = rest[order] / scale
    with pm.Model() as model:
        long, rise = pm.InverseGamma("long", 5, 20), pm.HalfNormal("rise", 1)
        season, shape = pm.HalfNormal("season", 2), pm.InverseGamma("shape", 5, 5)
        sigma = pm.HalfNormal("sigma", 0.3)
        trend = sgp.KMCGMarginal(cov_func=rise**2 * pm.gp.cov.ExpQuad(1, ls=long), n_iter=40, probes=4)
        yearly = sgp.KMCGMarginal(
            cov_func=season**2 * pm.gp.cov.Periodic(1, 1.0, ls=shape), n_iter=40, probes=4
        )
        total = trend + yearly
        total.marginal_likelihood("y", X=grid, y=target, sigma=sigma)
        idata, seconds = sample(draws, 1)
    print(f"\nCO2: {grid}, {total.rank} steps")
    report(idata, seconds)
    print(total.check(idata, model=model, progressbar=False))
    step = grid.spacing(0)
    future = sgp.RegularGrid([grid.axes[0][0] + step * np.arange(grid.shape[0] + 120)])
    few = min(100, 2 * draws)
    options = {"num_samples": few, "random_seed": 2, "model": model, "progressbar": False}
    all_of_it = total.predict_posterior(future, idata, pred_noise=True, **options)
    smooth = trend.predict_posterior(future, idata, given={"gp": total}, **options)
    held = total.predict_posterior(x[last][:, None], idata, pred_noise=True, **options)
    error = (y[last] - quadratic(x[last])) / scale - held["mean"].values
    print(f"five held-out years: RMSE {scale * np.sqrt(np.mean(error**2)):.2f} ppm")
    coverage(error, held["sd"], "held-out months")

    figure, axis = plt.subplots(figsize=(8, 3.6))
    base = quadratic(future.axes[0])
    mean, sd = base + scale * all_of_it["mean"], scale * all_of_it["sd"]
    axis.fill_between(future.axes[0], mean - 1.645 * sd, mean + 1.645 * sd, alpha=0.3, label="90%")
    axis.plot(future.axes[0], base + scale * smooth["mean"], "C3", lw=1, label="trend")
    axis.plot(x[~last], y[~last], "k.", ms=2, label="observed")
    axis.plot(x[last], y[last], "C1.", ms=3, label="held out")
    axis.set(xlabel="year", ylabel="CO2, ppm", xlim=(x.max() - 20, x.max() + 5))
    axis.set_ylim(y[x > x.max() - 20].min() - 3, float((mean + 1.7 * sd).max()) + 3)
    axis.legend(loc="upper left")
    save(figure, out / "co2.png")


def raster(draws, out, rng):
    """A rough surface with 30% of the cells missing."""
    axes = [np.linspace(0.0, 5.0, 50), np.linspace(0.0, 4.0, 40)]
    roots = [
        np.linalg.cholesky(kernel + 1e-8 * np.eye(len(axis)))
        for axis in axes
        for kernel in [_matern32(np.abs(axis[:, None] - axis) / 1.5)]
    ]
    surface = roots[0] @ rng.standard_normal((50, 40)) @ roots[1].T
    noisy = surface + 0.1 * rng.standard_normal(surface.shape)
    observed = rng.random(surface.shape) > 0.3
    observed[20:28, 14:22] = False  # and a hole
    data = np.where(observed, noisy, np.nan)
    grid = sgp.RegularGrid(axes, observed=observed)
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 3, shape=2)
        eta, sigma = pm.HalfNormal("eta", 2), pm.HalfNormal("sigma", 0.5)
        gp = sgp.KMCGMarginal(
            cov_func=eta**2 * sgp.cov.Product(pm.gp.cov.Matern32, 2, ls=ell), n_iter=30, probes=2
        )
        gp.marginal_likelihood("y", X=grid, y=data, sigma=sigma)
        idata, seconds = sample(draws, 3)
    print(f"\nraster: {grid}, {gp.rank} steps")
    report(idata, seconds)
    filled = gp.predict_posterior(
        sgp.RegularGrid(axes),
        idata,
        num_samples=min(50, 2 * draws),
        random_seed=4,
        model=model,
        progressbar=False,
    )
    mean = filled["mean"].values.reshape(grid.shape)
    sd = filled["sd"].values.reshape(grid.shape)
    cells = np.argwhere(~observed)
    nearest = griddata(np.argwhere(observed), data[observed], cells, method="nearest")
    linear = griddata(np.argwhere(observed), data[observed], cells, method="linear")
    linear = np.where(np.isnan(linear), nearest, linear)
    error = surface[~observed] - mean[~observed]
    print(
        f"missing cells: RMSE {np.sqrt(np.mean(error**2)):.3f}, linear interpolation "
        f"{np.sqrt(np.mean((surface[~observed] - linear) ** 2)):.3f}"
    )
    coverage(error, sd[~observed], "the surface")

    figure, panels = plt.subplots(1, 4, figsize=(13, 3), constrained_layout=True)
    limits = {"vmin": surface.min(), "vmax": surface.max()}
    for panel, values, title, options in zip(
        panels,
        (surface, data, mean, sd),
        ("truth", "observed", "filled in", "its standard deviation"),
        (limits, limits, limits, {"cmap": "magma"}),
        strict=True,
    ):
        image = panel.imshow(values, aspect="auto", **options)
        panel.set(title=title, xticks=[], yticks=[])
        figure.colorbar(image, ax=panel, shrink=0.8)
    save(figure, out / "raster.png")


def _matern32(r):
    return (1.0 + np.sqrt(3.0) * r) * np.exp(-np.sqrt(3.0) * r)


def save(figure, path):
    """Write the picture and say where."""
    figure.savefig(path, dpi=110, bbox_inches="tight")
    print(f"wrote {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--data", help="NPZ file with x (years) and y (ppm)")
    add("--parts", default="co2,raster")
    add("--draws", type=int, default=200, help="tuning steps and draws of each of 2 chains")
    add("--out", type=Path, default=Path(), help="folder for the pictures")
    args = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    rng = np.random.default_rng(0)
    if "co2" in args.parts:
        co2(args.data, args.draws, args.out, rng)
    if "raster" in args.parts:
        raster(args.draws, args.out, rng)


if __name__ == "__main__":
    main()
