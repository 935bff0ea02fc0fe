"""Predicted against observed, and slices of the function: the picture of the regression examples."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from problems import spread, standardize

Z90 = 1.6449  # half width of a central 90% interval, in standard deviations


def predict(gp, model, idata, X, draws=50):
    """Posterior mean and sd of the function, averaged over some of the draws (None: all)."""
    found = gp.predict_posterior(X, idata, num_samples=draws, random_seed=0, model=model, progressbar=False)
    return found["mean"].values, found["sd"].values


def with_noise(sd, idata):
    """Standard deviation of a new observation, from that of the function."""
    return np.sqrt(sd**2 + float((idata.posterior["sigma"] ** 2).mean()))


def slices(gp, model, idata, X, row, inputs, points=60):
    """Posterior of the function along some inputs, the others as in `row`."""
    grid = np.tile(row, (len(inputs), points, 1))
    for k, j in enumerate(inputs):
        grid[k, :, j] = np.linspace(X[:, j].min(), X[:, j].max(), points)
    mean, sd = predict(gp, model, idata, grid.reshape(-1, X.shape[1]))
    shape = (len(inputs), points)
    return grid, mean.reshape(shape), sd.reshape(shape)


def picture(out, problem, held_out, along, rng):
    """One PNG: predicted against observed with intervals, and slices of the function with intervals."""
    y, mean, sd = held_out
    fig = plt.figure(figsize=(12, 5.4), layout="constrained")
    left, right = fig.subfigures(1, 2, width_ratios=[1, 1.15])
    ax = left.subplots()
    some = rng.permutation(len(y))[:250]
    ax.errorbar(y[some], mean[some], Z90 * sd[some], fmt="o", ms=3, lw=0.8, color="C0", alpha=0.6)
    ends = [min(y.min(), mean.min()), max(y.max(), mean.max())]
    ax.plot(ends, ends, color="0.3", lw=1)
    ax.set(
        xlabel=f"{problem.target}, held out", ylabel="predicted, with 90% interval",
        title=f"{len(some)} of {len(y)} held-out rows",
    )  # fmt: skip
    inputs, row, row_y, grid, mean, noisy_sd, sd = along
    axes = right.subplots(2, 2, sharey=True).ravel()
    for ax, j, x, m, wide, narrow in zip(axes, inputs, grid, mean, noisy_sd, sd, strict=False):
        for s, alpha, label in [(wide, 0.2, "90%, observation"), (narrow, 0.5, "90%, function")]:
            low, high = m - Z90 * s, m + Z90 * s
            ax.fill_between(x[:, j], low, high, color="C0", alpha=alpha, lw=0, label=label)
        ax.plot(x[:, j], m, color="C0", lw=1, label="posterior mean")
        if problem.truth is not None:
            ax.plot(x[:, j], problem.truth(x), "k--", lw=1, label="true function")
        ax.plot(row[j], row_y, "o", ms=4, color="C3", label="the row's target")
        ax.set(xlabel=problem.inputs[j])
    for ax in axes[len(inputs) :]:
        ax.set_visible(False)
    axes[0].set(ylabel=problem.target)
    axes[len(inputs) - 1].legend(fontsize=8, frameon=False)
    right.suptitle("Slices of the function through one held-out row", fontsize=11)
    fig.savefig(out, dpi=110)


def show(out, fitted, problem, train, test, theta, held_out, rng):
    """The picture, from the problem's split and the predictions (mean, sd) of the held-out rows."""
    X, Xtest = standardize(problem.X[train], problem.X[test])
    center, scale = problem.y[train].mean(), float(spread(problem.y[train]))
    inputs = np.sort(np.argsort(theta["ell"])[:4])  # the shortest lengthscales: steepest slices
    grid, mean, sd = slices(*fitted, X, Xtest[0], inputs)
    grid = problem.X[train].mean(axis=0) + grid * spread(problem.X[train])
    sds = scale * with_noise(sd, fitted[2]), scale * sd
    row = problem.X[test[0]], problem.y[test[0]]
    along = (inputs, *row, grid, center + scale * mean, *sds)
    picture(out, problem, (problem.y[test], *held_out), along, rng)
