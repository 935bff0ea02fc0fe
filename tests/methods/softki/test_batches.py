"""Rows of a training: in memory, and streamed from what no memory holds."""

import numpy as np
import pymc as pm
import pytest

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.softki import batches
from pymc_scalable_gp.methods.softki.batches import MemoryRows, StreamedRows, training_rows

N = 500
RNG = np.random.default_rng(3)
X = RNG.standard_normal((N, 2))
Y = 1e6 + np.sin(2.0 * X[:, 0]) + 0.05 * RNG.standard_normal(N)


class Blocks:
    """Rows in blocks of unequal length, as often as they are asked for."""

    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        for start, stop in ((0, 3), (3, 3), (3, 190), (190, N)):
            yield X[start:stop], Y[start:stop]


def kinds(folder):
    np.save(folder / "X.npy", X)
    return {
        "memory": (X, Y),
        "memmap": (np.load(folder / "X.npy", mmap_mode="r"), Y),
        "blocks": (Blocks(), None),
        "list": ([(X[:200], Y[:200]), (X[200:], Y[200:])], None),
        "zarr": (zarr_array(), Y),
        "dask": (pytest.importorskip("dask.array").from_array(X, chunks=(99, 2)), Y),
    }


def zarr_array():
    found = pytest.importorskip("zarr").create_array({}, shape=X.shape, chunks=(64, 2), dtype="f8")
    found[:] = X
    return found


@pytest.mark.parametrize("kind", ["memory", "memmap", "blocks", "list", "zarr", "dask"])
@pytest.mark.parametrize("buffer", [10, 64, 10_000])
def test_an_epoch_has_every_row_but_those_held_out_once(kind, buffer, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BUFFER", buffer)
    monkeypatch.setattr(batches, "KMEANS_ROWS", 300)
    source, target = kinds(tmp_path)[kind]
    data = training_rows(source, target, 0.2, np.random.default_rng(0))
    assert type(data) is (MemoryRows if kind == "memory" else StreamedRows)
    assert data.size == N
    np.testing.assert_allclose(data.variance, Y.var(), rtol=1e-9)
    held = set(data.held.rows)
    assert len(held) == (100 if kind == "memory" else 60)
    assert data.count == N - len(held)
    rng, orders = np.random.default_rng(1), []
    for _ in range(2):
        found = list(data.batches(32, rng))
        assert all(len(batch.y) == 32 for batch in found[:-1])
        rows = np.concatenate([batch.rows for batch in found])
        assert sorted([*rows, *held]) == list(range(N))
        for batch in (*found, data.held, data.judges(50)):
            np.testing.assert_array_equal(batch.X, X[batch.rows])
            np.testing.assert_array_equal(batch.y, Y[batch.rows])
        orders.append(rows)
    assert (orders[0] != orders[1]).any()
    assert not held & set(data.judges(50).rows)
    assert 40 <= len(data.judges(50).y) <= 50


@pytest.mark.parametrize(("buffer", "mixed"), [(10, False), (10_000, True)])
def test_rows_are_shuffled_within_a_buffer(buffer, mixed, monkeypatch):
    """The first batch has rows of late blocks, if the buffer holds these too."""
    monkeypatch.setattr(batches, "BUFFER", buffer)
    parts = [(X[start : start + 50], Y[start : start + 50]) for start in range(0, N, 50)]
    data = training_rows(parts, None, 0.1, np.random.default_rng(0))
    first = next(data.batches(32, np.random.default_rng(1)))
    assert (first.rows.max() >= 400) == mixed


def test_rows_that_judge_are_evenly_spaced():
    found = MemoryRows(batches.Batch(X, Y, np.arange(N)), N, 1.0, 0.0, RNG)
    np.testing.assert_array_equal(found.judges(150).rows, np.arange(0, N, 4))


def test_a_sample_of_one_row_may_be_of_any():
    source = batches.open_source([(X[:3], Y[:3])], None)
    found = {
        int(batches._reservoir(source, 1, np.random.default_rng(seed))[0].rows[0]) for seed in range(30)
    }
    assert found == {0, 1, 2}


def test_the_sample_is_as_likely_from_everywhere(monkeypatch):
    """A hundred samples of 50 among 500 rows: each tenth of the rows gets a tenth, within six sd."""
    monkeypatch.setattr(batches, "KMEANS_ROWS", 50)
    rows = np.arange(float(N))
    counts = np.zeros(10)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        data = training_rows([(X[:77], rows[:77]), (X[77:], rows[77:])], None, 0.5, rng)
        found = np.concatenate([data.held.rows, data.judges(50).rows])
        assert len(set(found)) == 50
        counts += np.bincount(found // 50, minlength=10)
    np.testing.assert_allclose(counts, 500, atol=6 * np.sqrt(500))


def test_streamed_training_finds_what_training_in_memory_does(tmp_path):
    np.save(tmp_path / "X.npy", X)
    options = {"epochs": 8, "batch_size": 100, "random_seed": 0, "mode": "FAST_COMPILE",
               "progressbar": False}  # fmt: skip
    y = Y - 1e6
    with pm.Model():
        ell = pm.LogNormal("ell", 0.0, 0.3)
        gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), inducing=20)
        inside = sgp.fit_inducing(gp, X, y, **options)
        file = np.load(tmp_path / "X.npy", mmap_mode="r")
        outside = sgp.fit_inducing(gp, file, y, **options)
        again = sgp.fit_inducing(gp, file, y, **options)
    np.testing.assert_array_equal(outside.Z, again.Z)
    assert outside.validation[-1] < 1.6 * inside.validation[-1]  # of other rows, 50 each
    assert outside.validation[-1] < 0.9 * outside.validation[0]


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        (iter([(X, Y)]), TypeError, "read but once"),
        ([], ValueError, "no rows"),
        ([(X, np.full(N, np.nan))], ValueError, "NaN"),
    ],
)
def test_bad_sources(source, error, text):
    with pytest.raises(error, match=text):
        training_rows(source, None, 0.1, np.random.default_rng(0))
