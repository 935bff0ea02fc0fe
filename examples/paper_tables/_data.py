"""Data sets of the paper's tables: files, folds, standardisation, and a simulated stand-in."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Fold:
    """One train/test split, standardised on its training part."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray  # in target units
    center: float
    scale: float

    def score(self, mean, var):
        """RMSE, mean negative log predictive density, and 90% coverage, in target units.

        The predictive distribution is taken as Normal(mean, var), mixtures over draws too.
        """
        sd = self.scale * np.sqrt(var)
        error = self.y_test - (self.center + self.scale * mean)
        nlpd = 0.5 * (error / sd) ** 2 + np.log(sd) + 0.5 * np.log(2 * np.pi)
        return {
            "rmse": np.sqrt(np.mean(error**2)),
            "nlpd": nlpd.mean(),
            "coverage": np.mean(np.abs(error) < 1.6448536 * sd),
        }

    def standard_score(self, mean, var):
        """As `score`, in units of the training targets' sd."""
        found = self.score(mean, var)
        return found | {
            "rmse": found["rmse"] / self.scale, "nlpd": found["nlpd"] - np.log(self.scale),
        }  # fmt: skip


@dataclass(frozen=True)
class DataSet:
    """Inputs, targets, and one column of test rows for each fold."""

    name: str
    X: np.ndarray
    y: np.ndarray
    test: np.ndarray

    def fold(self, k):
        """Split k. Columns that are constant in the training part are only centred."""
        test = self.test[:, k]
        center, spread = self.X[~test].mean(axis=0), self.X[~test].std(axis=0)
        spread[spread < 1e-12] = 1.0
        X = (self.X - center) / spread
        mean, scale = self.y[~test].mean(), self.y[~test].std()
        return Fold(X[~test], (self.y[~test] - mean) / scale, X[test], self.y[test], mean, scale)

    def head(self, rows, seed=0):
        """The data set itself, or `rows` rows of it at random."""
        if rows is None or rows >= len(self.y):
            return self
        keep = np.sort(np.random.default_rng(seed).permutation(len(self.y))[:rows])
        return DataSet(self.name, self.X[keep], self.y[keep], self.test[keep])


def find(folder, name):
    """Path of a data set's file below `folder`, or None."""
    for path in (Path(folder) / f"{name}.npz", Path(folder) / "uci" / f"{name}.npz"):
        if path.exists():
            return path
    return None


def load(path):
    """Data set of a file with X, y, n and test_mask (bits packed along axis 0)."""
    with np.load(path, allow_pickle=False) as file:
        X, y = file["X"].astype(float), file["y"].astype(float)
        test = np.unpackbits(file["test_mask"], axis=0)[: int(file["n"])].astype(bool)
    return DataSet(path.stem, X, y, test)


def simulate(n=600, seed=0):
    """Friedman's function of 5 inputs with noise of sd 1 (one fold): needs no file."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 5))
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y = f + 10 * X[:, 3] + 5 * X[:, 4] + rng.normal(size=n)
    return DataSet("simulated", X, y, np.arange(n)[:, None] < n // 4)


def read_results(path):
    """Rows of an earlier run."""
    if path is None or not Path(path).exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def append(path, row, columns):
    """Write one row, and the header first where the file is new."""
    if path is None:
        return
    new = not Path(path).exists()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, columns)
        if new:
            writer.writeheader()
        writer.writerow(row)
