"""Rows to learn from: the command line of the examples, a simulated robot arm, CSV and NPZ files."""

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LINKS = np.array([0.14, 0.14, 0.13, 0.13, 0.12, 0.12, 0.11, 0.11])  # metres
AXES = "zyzyzyzy"  # joint j turns about this axis of the link before it
TARGET = np.array([0.5, 0.15, 0.1])
NOISE = 0.01  # metres


@dataclass
class Problem:
    """Inputs (n, d), target (n,), their names, and the noise-free function where it is known."""

    X: np.ndarray
    y: np.ndarray
    inputs: list[str]
    target: str
    truth: object = None


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


def standardize(train, *others):
    """Subtract the training mean and divide by the training standard deviation, by column."""
    return [(a - train.mean(axis=0)) / spread(train) for a in (train, *others)]


def spread(train):
    """Standard deviation of each column; 1 where it is constant."""
    sd = train.std(axis=0)
    return np.where(sd > 0, sd, 1.0)


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
