"""Statistics of rows that dask holds: threads, processes, and a worker that is lost."""

import os
import signal

import numpy as np
import pymc as pm
import pytest

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.rows import dask_rows

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

N, D = 600, 2
RNG = np.random.default_rng(5)
X = RNG.uniform(-1.0, 1.0, (N, D))
Y = np.sin(3.0 * X[:, 0]) + 0.2 * RNG.standard_normal(N)
Z = RNG.uniform(-1.0, 1.0, (9, D))


def gram(stats):
    return stats.triangle.T @ stats.triangle


@pytest.fixture(scope="module", params=["SoftKI", pytest.param("frozen", marks=pytest.mark.slow)])
def built(request):
    """A GP, its model, and what its statistics should be."""
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 3)
        cov = pm.gp.cov.ExpQuad(D, ls=ell)
        if request.param == "SoftKI":
            gp = sgp.SoftKIMarginal(cov_func=cov, inducing=Z, temperature=0.3)
        else:
            gp = sgp.GriefGP(cov_func=cov, basis="frozen", grid=6, rank=10)
        gp.build(X)
        return gp, model, gp.summarize(X, Y)


def assert_same(found, expected):
    assert found.size == expected.size
    np.testing.assert_allclose(gram(found), gram(expected), rtol=1e-10, atol=1e-9)
    np.testing.assert_array_equal(found.low, expected.low)
    np.testing.assert_array_equal(found.high, expected.high)


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
@pytest.mark.parametrize("chunks", [(600, 2), (100, 1), (7, 2)])
def test_arrays(built, scheduler, chunks):
    gp, model, expected = built
    with model, dask.config.set(scheduler=scheduler):
        xs, ys = da.from_array(X, chunks=chunks), da.from_array(Y, chunks=250)
        assert_same(gp.summarize(xs, ys), expected)
        assert_same(gp.summarize((xs, Y)), expected)


def test_tables_and_unknown_lengths(built):
    pytest.importorskip("pandas")
    xarray, dd = pytest.importorskip("xarray"), pytest.importorskip("dask.dataframe")
    import pandas as pd

    gp, model, expected = built
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, "c": 1.0})
    parts = dd.from_pandas(frame, npartitions=4)
    xs, ys = da.from_array(X, chunks=(150, 2)), da.from_array(Y, chunks=150)
    data = xarray.Dataset({c: ("row", da.from_array(frame[c].to_numpy(), chunks=99)) for c in frame})
    with model, dask.config.set(scheduler="synchronous"):
        for source, options in [
            (parts, {"y": "y", "columns": ["a", "b"]}),
            (parts[["a", "b"]].to_dask_array(), {"y": parts["y"].to_dask_array()}),
            (xarray.DataArray(xs, dims=("row", "col")), {"y": xarray.DataArray(ys, dims="row")}),
            (data, {"y": "y", "columns": ["a", "b"]}),
            (xs[xs[:, 0] > -2.0], {"y": ys[xs[:, 0] > -2.0]}),
        ]:
            assert_same(gp.summarize(source, **options), expected)


@pytest.mark.parametrize("lazy", ["a", "y", "c"])
def test_a_dataset_of_which_one_variable_is_lazy(built, lazy):
    """That may be a column, the targets, or what is not looked at."""
    xarray = pytest.importorskip("xarray")
    gp, model, expected = built
    data = {"a": X[:, 0], "b": X[:, 1], "y": Y, "c": np.ones(N)}
    data[lazy] = da.from_array(data[lazy], chunks=99)
    source = xarray.Dataset({name: ("row", values) for name, values in data.items()})
    with model, dask.config.set(scheduler="synchronous"):
        assert_same(gp.summarize(source, "y", columns=["a", "b"]), expected)


def test_columns_in_another_order_than_those_of_the_build():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    xarray = pytest.importorskip("xarray")
    frame = pd.DataFrame({"b": X[:, 1], "a": X[:, 0], "y": Y})
    with pm.Model(), dask.config.set(scheduler="synchronous"):
        gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), inducing=X[:5])
        gp.build(frame[["a", "b"]])
        chunked = {c: ("row", da.from_array(frame[c].to_numpy(), chunks=99)) for c in frame}
        for source in (dd.from_pandas(frame, npartitions=2), xarray.Dataset(chunked)):
            with pytest.raises(ValueError, match=r"columns in another order.*as \['a', 'b'\]"):
                gp.summarize(source, "y")


def test_the_whole_is_never_there(built):
    """No task gets more rows than a chunk has."""
    gp, model, expected = built
    seen = []

    def look(block):
        seen.append(len(block))
        return block

    xs = da.from_array(X, chunks=(50, 2)).map_blocks(look, meta=np.zeros((0, 2)))
    with model, dask.config.set(scheduler="synchronous"):
        assert_same(gp.summarize(xs, da.from_array(Y, chunks=50)), expected)
    assert max(seen) == 50
    assert sum(seen) == N


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (lambda xs, ys: (da.where(xs > 0.99, np.nan, xs), ys), "dask array, block .*NaN"),
        (lambda xs, ys: (xs, ys[1:]), "600 rows, y has 599"),
        (lambda xs, ys: (xs[:, :1], ys), "1 columns"),
        (lambda xs, ys: (xs[:0], ys[:0]), "no rows"),
        (lambda xs, ys: (xs[xs[:, 0] > 0], Y), "compute_chunk_sizes"),
        (lambda xs, ys: (xs[:, 0], ys), "X .n, d. and y"),
    ],
)
def test_bad_sources(built, bad, text):
    gp, model, _ = built
    xs, ys = bad(da.from_array(X, chunks=(100, 2)), da.from_array(Y, chunks=100))
    with model, dask.config.set(scheduler="synchronous"), pytest.raises(ValueError, match=text):
        gp.summarize(xs, ys)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"checkpoint": "file"}, "repeats lost tasks"), ({"columns": [0, 1]}, "is for tables")],
)
def test_what_is_not_for_arrays_of_dask_is_refused(built, options, words):
    gp, model, _ = built
    with model, pytest.raises(TypeError, match=words):
        gp.summarize(da.from_array(X), Y, **options)


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker(built, tmp_path):
    """One of two processes is killed in the middle: the same result."""
    distributed = pytest.importorskip("distributed")
    gp, model, expected = built
    flag = tmp_path / "killed"

    def kill_once(block):
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        xs, ys = da.from_array(X, chunks=(100, 2)), da.from_array(Y, chunks=100)
        with model:
            assert_same(gp.summarize(xs, ys), expected)
            assert_same(gp.summarize(xs.map_blocks(kill_once, meta=np.zeros((0, 2))), ys), expected)
    assert flag.exists()


class Bar:
    """What a progress bar is told."""

    def __init__(self, progressbar):
        self.shown, self.done, self.total = progressbar, 0, None

    def add_task(self, label, *, completed, total):
        self.total = total

    def advance(self, task):
        self.done += 1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def test_the_bar_counts_chunks(built, monkeypatch):
    gp, model, _ = built
    bars = []

    def bar(**options):
        bars.append(Bar(**options))
        return bars[-1]

    monkeypatch.setattr(dask_rows, "create_simple_progress", bar)
    with model, dask.config.set(scheduler="threads"):
        for shown in (True, False):
            gp.summarize(da.from_array(X, chunks=(100, 2)), Y, progressbar=shown)
    assert [(bar.shown, bar.done, bar.total) for bar in bars] == [(True, 6, 6), (False, 6, 6)]
