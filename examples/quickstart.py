"""A first model: the posterior of a Gaussian process's parameters, predictions and a picture.

python examples/quickstart.py [--data FILE] [--rows N] [--neighbors K] [--out FILE.png] [--seed S]

Without --data the script simulates a robot arm with four joints. FILE is a CSV file with the target
in its last column (a header line is optional), or an NPZ file with the arrays X (n, d) and y (n,). Of a
larger file --rows rows are taken at random; examples/millions.py takes all.
"""

import argparse
import csv
import time
from dataclasses import dataclass
from pathlib import Path

import arviz as az
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from reporting import chains
from threadpoolctl import threadpool_limits

import pymc_scalable_gp as sgp

LINKS = np.array([0.14, 0.14, 0.13, 0.13, 0.12, 0.12, 0.11, 0.11])  # metres
AXES = "zyzyzyzy"  # joint j turns about this axis of the link before it
TARGET = np.array([0.5, 0.15, 0.1])
NOISE = 0.01  # metres
SUBSET = 1000  # rows that an exact Gaussian process can afford
Z90 = 1.6449  # half width of a central 90% interval, in standard deviations


@dataclass
class Problem:
    """Inputs (n, d), target (n,), their names, and the noise-free function where it is known."""

    X: np.ndarray
    y: np.ndarray
    inputs: list[str]
    target: str
    truth: object = None


# -- data ---------------------------------------------------------------------------------------


def tip_distance(angles):
    """Distance (n,) of the arm's tip from TARGET, for angles (n, d) of 1, 2, 4 or 8 joints in radians.

    Fewer joints than eight have several links of LINKS between them.
    """
    n, d = angles.shape
    links = LINKS.reshape(d, -1).sum(axis=1)
    frame, tip = np.tile(np.eye(3), (n, 1, 1)), np.zeros((n, 3))
    for length, axis, angle in zip(links, AXES, angles.T, strict=False):
        i, j = (0, 1) if axis == "z" else (2, 0)
        turn = np.tile(np.eye(3), (n, 1, 1))
        turn[:, i, i] = turn[:, j, j] = np.cos(angle)
        turn[:, j, i], turn[:, i, j] = np.sin(angle), -np.sin(angle)
        frame = frame @ turn
        tip += length * frame[:, :, 0]
    return np.linalg.norm(tip - TARGET, axis=1)


def robot_arm(n, rng, joints=8):
    """Simulate n rows: joint angles up to 45 degrees either way, distance measured with noise."""
    X = rng.uniform(-np.pi / 4, np.pi / 4, (n, joints))
    y = tip_distance(X) + NOISE * rng.standard_normal(n)
    names = [f"joint {j + 1} (rad)" for j in range(joints)]
    return Problem(X, y, names, "distance (m)", tip_distance)


def read_csv(path):
    """Read a CSV file: comma, semicolon, tab or blanks between numbers, header line optional."""
    text = path.read_text(encoding="utf-8-sig")
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise SystemExit(f"{path} is empty")
    delimiter = next((c for c in ",;\t" if c in lines[0][1]), " ")
    rows = csv.reader((line.strip() for _, line in lines), delimiter=delimiter,
                      skipinitialspace=True)  # fmt: skip
    table = [[cell.strip() for cell in row] for row in rows]
    if delimiter == " ":
        table = [[cell for cell in row if cell] for row in table]
    numbers = [i for i, _ in lines]
    header = None
    if not any(is_number(cell) for cell in table[0]):
        header, table, numbers = table[0], table[1:], numbers[1:]
    d = len(header or table[0])
    names = header or [f"column {j + 1}" for j in range(d)]
    for i, row in zip(numbers, table, strict=True):
        if len(row) != d:
            raise SystemExit(f"{path}, line {i}: {len(row)} values, expected {d}")
        bad = next((j for j, cell in enumerate(row) if not is_number(cell)), None)
        if bad is not None:
            raise SystemExit(
                f"{path}, line {i}, {names[bad]}: {row[bad]!r} is not a number. Write categories "
                "as numbers, and drop rows with missing values"
            )
    values = np.array(table, dtype=float).reshape(-1, d)
    return values[:, :-1], values[:, -1], names[:-1], names[-1]


def is_number(cell):
    """Whether a cell reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def read_npz(path):
    """Read an NPZ file with the arrays X (n, d) and y (n,)."""
    with np.load(path, allow_pickle=False) as file:
        if not {"X", "y"} <= set(file.files):
            raise SystemExit(f"{path} must hold arrays X and y; it holds {', '.join(file.files)}")
        X, y = np.asarray(file["X"], dtype=float), np.asarray(file["y"], dtype=float)
    if X.ndim != 2 or y.shape not in ((len(X),), (len(X), 1)):
        raise SystemExit(f"{path}: X must be (n, d) and y (n,), got {X.shape} and {y.shape}")
    return X, y.ravel(), [f"column {j + 1}" for j in range(X.shape[1])], "y"


def read_data(path):
    """Read the user's rows, with a clear word on what cannot be used."""
    if not path.is_file():
        raise SystemExit(f"there is no file {path}")
    try:
        X, y, inputs, target = read_npz(path) if path.suffix == ".npz" else read_csv(path)
    except (ValueError, OSError, csv.Error) as error:
        raise SystemExit(f"{path} cannot be read: {error}") from None
    if X.shape[1] == 0 or len(y) < 50:
        raise SystemExit(f"{path}: need an input column and 50 rows, got {X.shape[1]}, {len(y)}")
    for name, column in zip([*inputs, target], [*X.T, y], strict=True):
        bad = np.flatnonzero(~np.isfinite(column))
        if len(bad):
            raise SystemExit(f"{path}: {name} has {len(bad)} missing or infinite values")
    if y.std() == 0:
        raise SystemExit(f"{path}: the target, {target}, is constant")
    return Problem(X, y, inputs, target)


# -- the steps ----------------------------------------------------------------------------------


def standardize(train, *others):
    """Subtract the training mean and divide by the training standard deviation, by column."""
    return [(a - train.mean(axis=0)) / spread(train) for a in (train, *others)]


def spread(train):
    """Standard deviation of each column; 1 where it is constant."""
    sd = train.std(axis=0)
    return np.where(sd > 0, sd, 1.0)


def kernel(d):
    """Kernel with a free lengthscale per input and a free scale, and a free noise, in a model context."""
    ell = pm.LogNormal("ell", 1.0, 1.0, shape=d)
    eta = pm.HalfNormal("eta", 2.0)
    return eta**2 * pm.gp.cov.ExpQuad(d, ls=ell), pm.HalfNormal("sigma", 1.0)


def fit_exact(X, y, Xnew):
    """Exact GP on a few rows: hyperparameters (MAP), and predictions with the noise and without."""
    with pm.Model():
        cov, sigma = kernel(X.shape[1])
        gp = sgp.ExactMarginal(cov_func=cov)
        theta = sgp.subset_map(gp, X, y, sigma, max_rows=len(X))
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        mean, var = gp.predict(Xnew, theta, diag=True)
    return theta, mean, np.sqrt(var + float(theta["sigma"]) ** 2), np.sqrt(var)


def fit(X, y, theta, neighbors, seed):
    """Posterior of all parameters of the kernel, and of the noise; the draws start at theta."""
    with pm.Model() as model:
        cov, sigma = kernel(X.shape[1])
        gp = sgp.VecchiaMarginal(cov_func=cov, n_inducing=100, neighbors=neighbors)
        gp.build(X, point=theta)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        start = {name: theta[name] for name in ("ell", "eta", "sigma")}
        with threadpool_limits(1):  # one core per chain: BLAS threads would wait for one another
            idata = pm.sample(400, tune=200, chains=2, cores=2, random_seed=seed, initvals=start)
    return gp, model, idata


def predict(gp, model, idata, X, draws=100):
    """Posterior mean and sd of the function, averaged over some of the draws (None: all)."""
    found = gp.predict_posterior(
        X, idata, num_samples=draws, random_seed=0, model=model, progressbar=False
    )
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


class Steps:
    """Say what happens, with the seconds since the start; time the steps."""

    def __init__(self):
        self.start = self.last = time.perf_counter()

    def __call__(self, text):
        now = time.perf_counter()
        print(f"[{now - self.start:5.0f} s] {text}", flush=True)

    def lap(self):
        """Seconds since the previous lap."""
        before, self.last = self.last, time.perf_counter()
        return self.last - before


def heading():
    """Print what the columns of `line` are."""
    print(f"\n{'':24}{'rows':>8}{'test RMSE':>12}{'90% cover':>11}{'seconds':>9}")


def line(label, y, mean, sd, rows="", seconds=None):
    """Print root mean square error, and the share of the rows inside their 90% interval."""
    rmse, cover = np.sqrt(np.mean((y - mean) ** 2)), np.mean(np.abs(y - mean) < Z90 * sd)
    spent = "" if seconds is None else f"{seconds:.0f}"
    print(f"{label:24}{rows:>8}{rmse:12.4g}{cover:11.1%}{spent:>9}")


def arguments(description, **options):
    """Command line, checked; `options` are whole numbers, each with a default and what it is."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--data", type=Path, help="CSV (target last) or NPZ (X, y)")
    for name, (default, help_) in options.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=help_)
    parser.add_argument("--out", type=Path, help="the picture")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out = args.out or Path(Path(parser.prog).stem + ".png")
    for name in options:
        least, value = 50 if name == "rows" else 1, getattr(args, name)
        if value is not None and value < least:
            parser.error(f"--{name} must be at least {least}")
    if not args.out.resolve().parent.is_dir():
        parser.error(f"--out: there is no folder {args.out.resolve().parent}")
    return args


def load(args, rng, joints, rows, share):
    """The problem (of so many `rows` where simulated), training rows, and 1 of `share` held out."""
    problem = read_data(args.data) if args.data else robot_arm(args.rows or rows, rng, joints)
    order = rng.permutation(len(problem.y))[: args.rows]
    test, train = np.split(order, [len(order) // share])
    return problem, train, test


def main():
    """Run all steps."""
    args = arguments(
        __doc__,
        rows=(3000, "rows taken, a third of which is held out (3000)"),
        neighbors=(30, "rows that each block of rows is given (30)"),
    )
    rng = np.random.default_rng(args.seed)
    say = Steps()

    say("1/5 Data: " + (f"reading {args.data}" if args.data else "simulating a 4-joint robot arm"))
    problem, train, test = load(args, rng, joints=4, rows=args.rows, share=3)
    X, Xtest = standardize(problem.X[train], problem.X[test])
    (y,) = standardize(problem.y[train])
    center, scale = problem.y[train].mean(), float(spread(problem.y[train]))
    say(f"    {len(train)} rows to learn from, {len(test)} held out, {X.shape[1]} inputs")

    few = min(SUBSET, len(train))  # the rows are in random order
    say(f"2/5 Exact GP on {few} rows (ExactMarginal): start values and a yardstick")
    theta, exact_mean, *exact_sds = fit_exact(X[:few], y[:few], Xtest)
    exact_seconds = say.lap()

    say(f"3/5 VecchiaMarginal on all {len(train)} rows: every parameter sampled")
    gp, model, idata = fit(X, y, theta, args.neighbors, args.seed)
    print(az.summary(idata, var_names=["ell", "eta", "sigma"]).to_string())
    chains(idata)

    say(f"4/5 Predictions for the {len(test)} held-out rows, averaged over draws")
    mean, sd = predict(gp, model, idata, Xtest)
    mean, sds = center + scale * mean, (scale * with_noise(sd, idata), scale * sd)
    seconds = say.lap()

    say("5/5 Picture")
    show(args.out, (gp, model, idata), problem, train, test, theta, (mean, sds[0]), rng)

    y_test, exact = problem.y[test], center + scale * exact_mean
    heading()
    line("VecchiaMarginal", y_test, mean, sds[0], len(train), seconds)
    line("exact GP, best point", y_test, exact, scale * exact_sds[0], few, exact_seconds)
    if problem.truth is not None:
        truth = problem.truth(problem.X[test])
        print("of the true function:")
        line("VecchiaMarginal", truth, mean, sds[1])
        line("exact GP, best point", truth, exact, scale * exact_sds[1])
        print(f"{'noise of the simulation':24}{'':8}{NOISE:12.4g}")
    say(f"done; the picture is in {args.out}")


if __name__ == "__main__":
    main()
