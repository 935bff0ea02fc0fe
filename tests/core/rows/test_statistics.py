"""Statistics of rows: any source, merged and taken apart, and models that see nothing else."""

from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from compared import draw_many
from marks import often
from scipy.stats import multivariate_normal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.rows import collect
from pymc_scalable_gp.core.rows.statistics import BasisMark, RowStatistics

N, D = 400, 2
RNG = np.random.default_rng(5)
X = RNG.uniform(-1.0, 1.0, (N, D))
Y = np.sin(3.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * RNG.standard_normal(N)
Z = RNG.uniform(-1.0, 1.0, (12, D))
POINT = {"ell": 0.7, "eta": 1.3, "sigma": 0.3, "c": 0.4, "slope": np.array([0.2, -0.5])}


def means(kind):
    if kind == "zero":
        return None
    if kind == "fixed":
        return pm.gp.mean.Linear(np.array([0.3, 0.1]), 0.2)
    if kind == "constant":
        return pm.gp.mean.Constant(pm.Normal("c"))
    line = pm.gp.mean.Linear(pm.Normal("slope", shape=D), pm.Normal("c"))
    return line + pm.gp.mean.Constant(1.5)


def make(kind="SoftKI", mean="zero", rows=X):
    """A GP of a class, built on `rows`, and sigma; in the model of the context."""
    sigma = pm.HalfNormal("sigma")
    ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta")
    options = {"mean_func": means(mean), "approx": "DTC"}
    if kind == "SoftKI":
        cov = eta**2 * pm.gp.cov.ExpQuad(D, ls=ell)
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=Z, temperature=0.3, **options)
    elif kind == "frozen":
        cov = eta**2 * pm.gp.cov.ExpQuad(D, ls=ell)
        gp = sgp.GriefGP(
            cov_func=cov, grid=8, rank=20, basis="frozen", reference={"ell": 0.6, "eta": 1.0}, **options
        )
    else:
        cov = 1.2 * pm.gp.cov.ExpQuad(D, ls=0.6)
        gp = sgp.GriefGP(cov_func=cov, grid=8, rank=20, **options)
    gp.build(rows)
    return gp, sigma


def point_of(model):
    """What the model knows of POINT."""
    return {v.name: POINT[v.name] for v in model.free_RVs}


def logp(model):
    """Log density at POINT, priors included, on the variables' own scale."""
    values = {}
    for v in model.free_RVs:
        transform, value = model.rvs_to_transforms[v], np.asarray(POINT[v.name])
        if transform is not None:
            value = transform.forward(value, *v.owner.inputs).eval()
        values[model.rvs_to_values[v].name] = value
    return model.compile_logp(jacobian=False)(values)


@pytest.mark.parametrize(
    ("kind", "mean"),
    often(
        [("SoftKI", mean) for mean in ("zero", "fixed", "constant", "linear")]
        + [("frozen", "linear"), ("weights", "linear")],
        ("SoftKI", "constant"),
        ("frozen", "linear"),
        ("weights", "linear"),
    ),
)
def test_the_density_is_that_of_the_rows(kind, mean):
    def model(by_statistics):
        with pm.Model() as m:
            gp, sigma = make(kind, mean)
            more = {"weights": np.linspace(0.5, 2.0, gp.rank)} if kind == "weights" else {}
            if by_statistics:
                gp.marginal_likelihood("y", statistics=gp.summarize(X, Y), sigma=sigma, jitter=0.01, **more)
                assert gp.likelihood_path == "summarized"
            else:
                gp.marginal_likelihood("y", X, Y, sigma, jitter=0.01, **more)
        return m, gp

    (rows, gp), (alone, summarized) = model(False), model(True)
    np.testing.assert_allclose(logp(alone), logp(rows), rtol=1e-9)
    Xnew = RNG.uniform(-1.0, 1.0, (5, D))
    point = point_of(rows)
    for noise in (False, True):
        expected = gp.predict(Xnew, point=point, diag=True, pred_noise=noise, model=rows)
        found = summarized.predict(Xnew, point=point, diag=True, pred_noise=noise, model=alone)
        np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize(
    ("kind", "mean"),
    often(
        product(("SoftKI", "frozen", "weights", "rotated"), ("constant", "linear")),
        ("SoftKI", "linear"),
        ("weights", "constant"),
        ("rotated", "linear"),
    ),
)
def test_arrays_under_a_mean_with_free_coefficients(kind, mean):
    """O(r^3) or O(r): the density and predictions of all rows, and of those that replaced them."""

    def model(sigma_of):
        with pm.Model() as m:
            if kind == "rotated":
                sigma = pm.HalfNormal("sigma")
                gp = sgp.GriefGP(cov_func=FIXED, grid=8, rank=20, rotate=True, mean_func=means(mean))
            else:
                gp, sigma = make(kind, mean)
            gp.marginal_likelihood("y", X, pm.Data("targets", Y), sigma_of(sigma))
        return m, gp

    (short, gp), (full, by_rows) = model(lambda s: s), model(lambda s: s * np.ones(N))
    assert gp.likelihood_path == ("rotated" if kind == "rotated" else "summarized")
    assert by_rows.likelihood_path == "full"
    for targets in (Y, 1e6 + Y[::-1]):
        for m in (short, full):
            pm.set_data({"targets": targets}, model=m)
        np.testing.assert_allclose(logp(short), logp(full), rtol=1e-9)
        expected = by_rows.predict(X[:5], point=point_of(full), diag=True, model=full)
        found = gp.predict(X[:5], point=point_of(short), diag=True, model=short)
        np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_a_mean_that_is_not_linear_keeps_the_rows():
    for free in (
        lambda: pm.gp.mean.Constant(pm.Normal("c")) * pm.gp.mean.Constant(2.0),
        lambda: pm.gp.mean.Constant(pm.Normal("c", shape=N)),
    ):
        with pm.Model() as model:
            gp = sgp.GriefGP(cov_func=FIXED, grid=6, rank=10, approx="DTC", mean_func=free())
            gp.marginal_likelihood("y", X, Y, 0.3)
        assert gp.likelihood_path == "full"
        assert np.isfinite(model.compile_logp()(model.initial_point()))


@pytest.fixture(scope="module")
def softki():
    with pm.Model() as model:
        gp, sigma = make()
    return model, gp, sigma


def gram(stats):
    return stats.triangle.T @ stats.triangle


def assert_same(a, b, rtol=1e-10):
    assert a.size == b.size
    np.testing.assert_allclose(gram(a), gram(b), rtol=rtol, atol=rtol * np.abs(gram(b)).max())
    np.testing.assert_array_equal(a.low, b.low)
    np.testing.assert_array_equal(a.high, b.high)


def sources(folder):
    """The same rows from every kind of source that needs no extra."""
    np.save(folder / "X.npy", X)
    frame = pytest.importorskip("pandas").DataFrame({"a": X[:, 0], "y": Y, "b": X[:, 1]})
    xarray = pytest.importorskip("xarray")
    table = xarray.Dataset({c: ("row", frame[c].to_numpy()) for c in frame})
    cuts = [0, 1, 130, 130, 399, N]
    return {
        "pair": ((X, Y), {}),
        "float32": (X.astype("float32"), {"y": Y}),
        "memmap": (np.load(folder / "X.npy", mmap_mode="r"), {"y": Y}),
        "fortran": (np.asfortranarray(X), {"y": Y}),
        "frame": (frame, {"y": "y"}),
        "frame and array": (frame[["a", "b"]], {"y": Y}),
        "columns": (frame.assign(c=1.0), {"y": "y", "columns": ["a", "b"]}),
        "xarray": (xarray.DataArray(X, dims=("row", "col")), {"y": xarray.DataArray(Y, dims="row")}),
        "dataset": (table, {"y": "y", "columns": ["a", "b"]}),
        "iterator": (((X[a:b], Y[a:b]) for a, b in pairwise(cuts)), {}),
        "list": ([(X[:7].tolist(), Y[:7].tolist()), (X[7:], Y[7:])], {}),
    }  # fmt: skip


def test_columns_in_another_order_than_those_of_the_build(tmp_path):
    """They would be taken by their place; names that are others are none of ours."""
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"b": X[:, 1], "a": X[:, 0], "y": Y})
    frame.to_parquet(tmp_path / "rows.parquet")
    swapped = frame[["b", "a"]]
    with pm.Model():
        gp, sigma = make(rows=frame[["a", "b"]])
        sources = [
            (frame, {"y": "y"}), (swapped, {"y": Y}), ([(swapped[:9], Y[:9])], {}),
            (tmp_path / "rows.parquet", {"y": "y"}),
            (xarray.Dataset({c: ("row", frame[c].to_numpy()) for c in frame}), {"y": "y"}),
        ]  # fmt: skip
        for source, options in sources:
            with pytest.raises(ValueError, match=r"columns in another order.*as \['a', 'b'\]"):
                gp.summarize(source, **options, progressbar=False)
        expected = gp.summarize(X, Y, progressbar=False)
        for source, columns in [(frame, ["a", "b"]), (frame.rename(columns={"a": "c"}), ["c", "b"])]:
            assert_same(gp.summarize(source, "y", columns=columns, progressbar=False), expected)
        for likely in (gp, sgp.GriefGP(cov_func=gp.cov_func, grid=8, rank=20) + gp):
            with pytest.raises(ValueError, match=r"X has columns in another order.*as \['a', 'b'\]"):
                likely.marginal_likelihood("z", X=swapped, y=Y, sigma=sigma)


def test_every_source_gives_the_same(softki, tmp_path):
    model, gp, _ = softki
    with model:
        expected = gp.summarize(X, Y, progressbar=False)
        assert "400 rows" in repr(expected)
        for name, (source, options) in sources(tmp_path).items():
            found = gp.summarize(source, **options, progressbar=False)
            if name == "float32":
                np.testing.assert_allclose(gram(found), gram(expected), rtol=1e-5, atol=1e-4)
            else:
                assert_same(found, expected)


@pytest.mark.parametrize("source", [(X, Y), ((X, Y),)], ids=["array", "pair"])
def test_arrays_build_a_gp_that_is_not_built(softki, source):
    model, gp, _ = softki
    other = sgp.SoftKIMarginal(cov_func=gp.cov_func, inducing=Z, temperature=0.3, approx="DTC")
    with model:
        assert_same(other.summarize(*source, progressbar=False), gp.summarize(X, Y, progressbar=False))
    assert other.is_built


def test_files_of_tables_and_chunks(softki, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    zarr = pytest.importorskip("zarr")
    model, gp, _ = softki
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
    (tmp_path / "parts").mkdir()
    frame[:150].to_parquet(tmp_path / "parts" / "0.parquet")
    frame[150:].to_parquet(tmp_path / "parts" / "1.parquet")
    stored = zarr.create_array(tmp_path / "X.zarr", shape=X.shape, chunks=(64, 2), dtype="float64")
    stored[:] = X
    with model:
        expected = gp.summarize(X, Y)
        assert_same(gp.summarize(tmp_path / "parts", "y"), expected)
        assert_same(gp.summarize(stored, Y), expected)


def test_sums_and_differences(softki):
    model, gp, _ = softki
    folds = [slice(0, 150), slice(150, 151), slice(151, N)]
    with model:
        whole = gp.summarize(X, Y)
        parts = [gp.summarize(X[f], Y[f]) for f in folds]
        rest = gp.summarize(X[151:], Y[151:])
    a, b, c = parts
    assert_same(sum(parts), whole)
    assert_same((c + a) + b, whole)
    assert_same(c + (b + a), whole)
    left = whole - (a + b)
    assert left.size == rest.size
    np.testing.assert_allclose(gram(left), gram(rest), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(left.high, whole.high)  # the range of what is left is not known
    with pytest.raises(ValueError, match="none would be left"):
        a - whole
    with pytest.raises(TypeError):
        a + 1


def test_saved_and_loaded(softki, tmp_path):
    model, gp, sigma = softki
    with model:
        stats = gp.summarize(X, Y)
        stats.save(tmp_path / "rows")
        found = sgp.RowStatistics.load(tmp_path / "rows")
        assert_same(found, stats, rtol=0)
        assert stats.mark.difference(found.mark) is None
        gp.marginal_likelihood("loaded", statistics=found, sigma=sigma)
    assert [file.name for file in tmp_path.iterdir()] == ["rows"]
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(ValueError, match="no RowStatistics"):
        sgp.RowStatistics.load(tmp_path / "other.npz")
    np.save(tmp_path / "array.npy", X)
    (tmp_path / "text").write_text("a, b")
    (tmp_path / "empty").touch()
    for foreign in ("array.npy", "text", "empty"):
        with pytest.raises(ValueError, match="holds no RowStatistics"):
            sgp.RowStatistics.load(tmp_path / foreign)
    with np.load(tmp_path / "rows") as file:
        changed = dict(file) | {"format": 0}
    np.savez(tmp_path / "old.npz", **changed)
    with pytest.raises(ValueError, match="another layout"):
        sgp.RowStatistics.load(tmp_path / "old.npz")


def test_a_pass_goes_on_from_its_checkpoint(softki, tmp_path):
    model, gp, _ = softki
    file = tmp_path / "half.npz"
    read = []

    def rows(fails):
        for start in range(0, N, 50):
            if fails and start == 200:
                raise OSError("the disk is gone")
            read.append(start)
            yield X[start : start + 50], Y[start : start + 50]

    with model:
        expected = gp.summarize(X, Y)
        with pytest.raises(OSError, match="disk"):
            gp.summarize(rows(True), checkpoint=file)
        assert sgp.RowStatistics.load(file).size == 200
        with pytest.raises(ValueError, match="has 200 rows, the source 100"):
            gp.summarize(X[:100], Y[:100], checkpoint=file)
        assert_same(gp.summarize(rows(False), checkpoint=file), expected)
        assert not file.exists()
        with pytest.raises(OSError, match="disk"):
            gp.summarize(rows(True), checkpoint=file)
        # What the file has seen is not read again: these rows would be refused.
        spoilt = np.where(np.arange(N)[:, None] < 200, np.nan, X)
        assert_same(gp.summarize(spoilt, Y, checkpoint=file), expected)
        other = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(D, ls=1.0), inducing=Z + 0.1)
        with pytest.raises(OSError, match="disk"):
            gp.summarize(rows(True), checkpoint=file)
        other.build(X)
        with pytest.raises(ValueError, match="another pass: the basis"):
            other.summarize(X, Y, checkpoint=file)


def test_a_checkpoint_is_written_once_a_minute(softki, tmp_path, monkeypatch):
    """By a clock that a block moves by 25 seconds: after blocks 3, 6 and 9."""
    model, gp, _ = softki
    file, now, seen = tmp_path / "half.npz", [100.0], []
    monkeypatch.setattr(collect, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def rows():
        for start in range(0, N, 40):
            seen.append(sgp.RowStatistics.load(file).size if file.exists() else 0)
            now[0] += 25.0
            yield X[start : start + 40], Y[start : start + 40]

    with model:
        gp.summarize(rows(), checkpoint=file, progressbar=False)
    assert seen == [0, 0, 0, 120, 120, 120, 240, 240, 240, 360]


@pytest.mark.parametrize(("at", "within", "kept"), [(100, None, 100), (0, None, None), (200, 3, None)])
def test_a_pass_that_is_stopped_keeps_whole_blocks(softki, tmp_path, monkeypatch, at, within, kept):
    """By the user: between two blocks, before any, and while the third one is taken in."""
    model, gp, _ = softki
    file, added, add = tmp_path / "half.npz", [], collect.RowFactor.add

    def adding(factor, values):
        add(factor, values)
        added.append(len(values))
        if len(added) == within:
            raise KeyboardInterrupt

    def rows():
        for start in range(0, N, 50):
            if start == at:
                raise KeyboardInterrupt
            yield X[start : start + 50], Y[start : start + 50]

    monkeypatch.setattr(collect.RowFactor, "add", adding)
    with model, pytest.raises(KeyboardInterrupt):
        gp.summarize(rows(), checkpoint=file, progressbar=False)
    assert (sgp.RowStatistics.load(file).size if file.exists() else None) == kept


@pytest.mark.parametrize("kind", ["stream", "parquet"])
def test_a_pass_goes_on_inside_a_block(softki, tmp_path, kind):
    """What an earlier pass has seen ends within a block of the source: no row is lost or taken twice."""
    model, gp, _ = softki
    file, cuts = tmp_path / "half.npz", [0, 90, 205, N]
    with model:
        expected = gp.summarize(X, Y)
        gp.summarize(X[:150], Y[:150]).save(file)
        if kind == "stream":
            source = [(X[a:b], Y[a:b]) for a, b in pairwise(cuts)], None
        else:
            frame = pytest.importorskip("pandas").DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
            pytest.importorskip("pyarrow")
            frame.to_parquet(tmp_path / "rows.parquet", row_group_size=90)
            source = tmp_path / "rows.parquet", "y"
        assert_same(gp.summarize(*source, checkpoint=file), expected)


class ByLabel:
    """Rows of pandas before version 3 with an index of floats, by which [] goes."""

    def __init__(self, values):
        self.iloc, self.shape, self.ndim = values, values.shape, values.ndim

    def __len__(self):
        return len(self.iloc)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.iloc, dtype)

    def __getitem__(self, rows):
        labels = np.arange(len(self)) - 20.5
        start = rows.start or 0
        stop = N if rows.stop is None else rows.stop
        return self.iloc[(labels >= start) & (labels <= stop)]


def test_rows_go_by_their_place_whatever_their_labels(softki, tmp_path):
    """In a column beside an array, in blocks, and where a pass goes on inside one."""
    model, gp, _ = softki
    file, cuts = tmp_path / "half.npz", [0, 90, 205, N]
    blocks = [(ByLabel(X[a:b]), ByLabel(Y[a:b])) for a, b in pairwise(cuts)]
    with model:
        expected = gp.summarize(X, Y, progressbar=False)
        assert_same(gp.summarize(X, ByLabel(Y), progressbar=False), expected)
        gp.summarize(X[:150], Y[:150], progressbar=False).save(file)
        assert_same(gp.summarize(blocks, checkpoint=file, progressbar=False), expected)
        gp.summarize(X[:150], Y[:150], progressbar=False).save(file)
        assert_same(gp.summarize(X, ByLabel(Y), checkpoint=file, progressbar=False), expected)


def test_a_save_that_fails_leaves_the_file_as_it_was(softki, tmp_path, monkeypatch):
    model, gp, _ = softki
    with model:
        known, more = gp.summarize(X[:50], Y[:50]), gp.summarize(X, Y)
    known.save(tmp_path / "rows.npz")

    def broken(file, **arrays):
        file.write(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="full"):
        more.save(tmp_path / "rows.npz")
    assert sgp.RowStatistics.load(tmp_path / "rows.npz").size == 50


def pairs(*blocks):
    return iter(blocks)


@pytest.mark.parametrize(
    ("source", "options", "error", "text"),
    [
        (pairs((X[:9], Y[:9]), (np.where(X > 0.9, np.nan, X), Y)), {}, ValueError, r"block 1 .*row \d+"),
        (pairs((X, np.where(np.arange(N) == 7, np.inf, Y))), {}, ValueError, "iterator, block 0 .*row 7"),
        (pairs((X[:9], Y[:9]), (X[:, :1], Y)), {}, ValueError, "1 columns"),
        (pairs((X[:9], Y[:8])), {}, ValueError, r"\(9, 2\) and \(8,\)"),
        (pairs(X[:9]), {}, TypeError, "pairs"),
        (pairs(), {}, ValueError, "no rows"),
        (X[:0], {"y": Y[:0]}, ValueError, "no rows"),
        (X, {"y": Y[1:]}, ValueError, r"\(400, 2\) and \(399,\)"),
        (X, {}, ValueError, "targets y"),
        (np.ma.masked_greater(X, 0.9), {"y": Y}, ValueError, "masked"),
        (X, {"y": "y"}, TypeError, "not of ndarray"),
        (X, {"y": Y, "columns": ["a"]}, TypeError, "columns= is for tables"),
        (np.column_stack([X, X]), {"y": Y}, ValueError, "4 columns"),
        (42, {"y": Y}, TypeError, "cannot read rows from int"),
        ({"X": X}, {}, TypeError, "cannot read rows from dict"),
        (X.astype(str), {"y": Y}, TypeError, "numeric"),
        (pairs((X[0], Y[0])), {}, TypeError, "got a single row"),
    ],
)  # fmt: skip
def test_bad_sources(softki, source, options, error, text):
    model, gp, _ = softki
    with model, pytest.raises(error, match=text):
        gp.summarize(source, **options)


def test_bad_tables(softki):
    pandas = pytest.importorskip("pandas")
    model, gp, _ = softki
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
    with model:
        for options, text in [
            ({}, "name of a column"),
            ({"y": "z"}, "no column 'z'"),
            ({"y": "y", "columns": ["a", "y"]}, "other than"),
        ]:
            with pytest.raises(ValueError, match=text):
                gp.summarize(frame, **options)


def test_columns_of_other_names_and_kinds(softki, tmp_path):
    pandas, pads = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    dask = pytest.importorskip("dask.dataframe")
    model, gp, _ = softki
    frame = pandas.DataFrame(np.column_stack([X, Y]))  # columns 0, 1, 2
    dates = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, "when": pandas.Timestamp("2020")})
    dates.to_parquet(tmp_path / "dates.parquet")
    with model:
        expected = gp.summarize(X, Y)
        assert_same(gp.summarize(frame, 2), expected)
        assert_same(gp.summarize(dask.from_pandas(frame, npartitions=1), 2), expected)
        assert_same(gp.summarize(X.tolist(), Y.tolist()), expected)
        assert_same(gp.summarize(tmp_path / "dates.parquet", "y", columns=["a", "b"]), expected)
        with pytest.raises(TypeError, match=r"not: when \(timestamp"):
            gp.summarize(tmp_path / "dates.parquet", "y")
        with pytest.raises(TypeError, match="not of Table"):
            gp.summarize(pads.table({"a": X[:, 0], "y": Y}), "y")


def test_data_that_may_change_are_refused():
    with pm.Model():
        gp, _ = make()
        with pytest.raises(TypeError, match="pm.Data"):
            gp.summarize(pm.Data("X", X), Y)


def test_statistics_of_another_basis_are_refused(softki):
    model, gp, _ = softki
    with model:
        stats = gp.summarize(X, Y)
    cov = pm.gp.cov.ExpQuad(D, ls=0.7)
    others = {
        "1[12] functions, not 1[12]": sgp.SoftKIMarginal(cov_func=cov, inducing=Z[:11], temperature=0.3),
        "other values": sgp.SoftKIMarginal(cov_func=cov, inducing=Z, temperature=0.301),
        "another range": sgp.SoftKIMarginal(cov_func=cov, inducing=Z + 1e-3, temperature=0.3),
    }
    with pm.Model():
        mean = pm.gp.mean.Constant(pm.Normal("c"))
        others["the mean's functions have other values"] = sgp.SoftKIMarginal(
            mean_func=pm.gp.mean.Constant(1.0), cov_func=cov, inducing=Z, temperature=0.3
        )
        others["mean has"] = sgp.SoftKIMarginal(mean_func=mean, cov_func=cov, inducing=Z, temperature=0.3)
        for text, other in others.items():
            other.build(X)
            with pytest.raises(ValueError, match=text):
                other.marginal_likelihood("y", statistics=stats, sigma=0.1)
            with pytest.raises(ValueError, match=text):
                stats + other.summarize(X, Y)


def test_another_basis_beside_a_mean_of_large_inputs():
    """UTM metres or Unix seconds, which the mean multiplies, hid any difference of the features."""
    made = []
    rows = 1.7e9 + 1000.0 * (X[:, :1] + 1.0)
    for ls in (200.0, 201.0):
        with pm.Model():
            mean = pm.gp.mean.Linear(pm.Normal("slope", shape=1), pm.Normal("c"))
            gp = sgp.GriefGP(
                mean_func=mean, cov_func=pm.gp.cov.ExpQuad(1, ls=ls), grid=10, rank=8, approx="DTC"
            )
            gp.build(rows)
            made.append(gp.summarize(rows, Y, progressbar=False))
    assert (made[0] + made[0]).size == 2 * N
    with pytest.raises(ValueError, match="other values: other points, kernel"):
        made[0] + made[1]


def test_the_range_is_that_of_the_rows():
    """Points fixed on a sample: the features reach as far as the rows that were summarised."""
    inner = np.abs(X).max(axis=1) < 0.7
    with pm.Model() as model:
        gp, sigma = make(rows=X[inner])
        gp.marginal_likelihood("y", statistics=gp.summarize(X, Y), sigma=sigma)
    with pm.Model() as whole:
        full, sigma = make()
        full.marginal_likelihood("y", X, Y, sigma)
    np.testing.assert_allclose(logp(model), logp(whole), rtol=1e-9)
    found = gp.predict(X[:20], point=point_of(model), diag=True, model=model)
    expected = full.predict(X[:20], point=point_of(whole), diag=True, model=whole)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


FIXED_VARIANCE = 1.2
FIXED = FIXED_VARIANCE * pm.gp.cov.ExpQuad(D, ls=0.7)
OTHERS = {
    "CholQR": lambda: sgp.CholQRMarginal(cov_func=FIXED, n_inducing=15, approx="DTC"),
    "CholQR, scaled product": lambda: sgp.CholQRMarginal(
        cov_func=pm.HalfNormal("eta") ** 2 * sgp.cov.Product(pm.gp.cov.Matern52, D, ls=0.7),
        n_inducing=15,
        approx="DTC",
    ),
    "SKIP": lambda: sgp.SKIPMarginal(cov_func=FIXED, rank=6, grid_size=20, approx="DTC"),
    "sum": lambda: (
        sgp.GriefGP(cov_func=FIXED, grid=6, rank=10, approx="DTC")
        + sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(D, ls=0.3), grid=6, rank=10, approx="DTC")
    ),
}


@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize("case", OTHERS)
def test_other_classes_with_a_fixed_kernel(case):
    found = []
    for by_statistics in (True, False):
        with pm.Model() as model:
            gp, sigma = OTHERS[case](), pm.HalfNormal("sigma")
            gp.build(X)
            if by_statistics:
                gp.marginal_likelihood("y", statistics=gp.summarize(X, Y), sigma=sigma)
            else:
                gp.marginal_likelihood("y", X, Y, sigma)
        found.append(logp(model))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def rotated(statistics=None, rotate=True, mean="zero"):
    """A fixed kernel with free weights, built on a sample; the GP and its model."""
    sample = np.vstack([X[:60], X.min(axis=0), X.max(axis=0)])
    with pm.Model() as model:
        gp = sgp.GriefGP(
            cov_func=FIXED, grid=8, rank=20, rotate=rotate, approx="DTC", mean_func=means(mean)
        )
        options = {"statistics": statistics} if statistics is not None and rotate else {}
        rank = gp.build(sample, progressbar=False, **options)
        if statistics is not None:
            sigma, w = pm.HalfNormal("sigma"), pm.LogNormal("w", shape=rank)
            gp.marginal_likelihood("y", statistics=statistics, sigma=sigma, weights=w)
    return gp, model


@pytest.mark.parametrize("mean", ["zero", "constant"])
def test_a_basis_rotated_by_statistics(mean):
    """O(r) of rows that came in blocks: the dense normal of the rotated features, in two blocks of rows."""
    first, _ = rotated(mean=mean)
    stats = first.summarize([(X[:150], Y[:150]), (X[150:], Y[150:])], progressbar=False)
    gp, model = rotated(stats, mean=mean)
    assert gp.likelihood_path == "rotated"
    V = gp.feature_map.rotation.vectors
    with pm.Model():
        plain, _ = rotated(rotate=False, mean=mean)
        phi = plain.feature_map.features(pt.as_tensor(X)).eval() @ V
    cross = phi.T @ phi
    np.testing.assert_allclose(cross, np.diag(np.diagonal(cross)), atol=1e-10 * cross.max())
    w = np.exp(np.random.default_rng(3).standard_normal(gp.rank))
    point = {"w": w, "sigma": 0.3} | ({"c": 0.4} if mean == "constant" else {})
    center = 0.4 if mean == "constant" else 0.0
    cov = (phi * w) @ phi.T + 0.09 * np.eye(N)
    expected = multivariate_normal(np.full(N, center), cov).logpdf(Y)
    value = model.compile_logp(vars=[model["y"]])(
        {"w_log__": np.log(w), "sigma_log__": np.log(0.3)} | {k: point[k] for k in point if k == "c"}
    )
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    found = gp.predict(X[:5], point, diag=True, model=model)
    near = (phi[:5] * w) @ phi.T
    solved = np.linalg.solve(cov, np.c_[Y - center, near.T])
    np.testing.assert_allclose(found[0], center + near @ solved[:, 0], rtol=1e-8)
    var = FIXED_VARIANCE - (phi[:5] ** 2).sum(axis=1) + ((phi[:5] ** 2) * w).sum(axis=1)
    np.testing.assert_allclose(found[1], var - np.einsum("ij,ji->i", near, solved[:, 1:]), rtol=1e-6)
    with pm.Model():
        fixed = gp.marginal_likelihood("y", statistics=stats, sigma=0.3, weights=w)
    draws = draw_many(fixed, 4000, random_seed=1)
    s2 = np.diagonal(cross)
    np.testing.assert_allclose(draws.var(axis=0), w * s2 + 0.09, rtol=0.15)  # 7 standard errors


def test_a_rotation_belongs_to_its_rows():
    gp, _ = rotated()
    stats = gp.summarize(X, Y, progressbar=False)
    with pm.Model(), pytest.raises(ValueError, match="rotated basis was built on other rows"):
        gp.marginal_likelihood("y", statistics=stats, sigma=0.3)
    plain, _ = rotated(rotate=False)
    with pytest.raises(TypeError, match="with rotate=True only"):
        plain.build(X, statistics=stats)
    with pytest.raises(ValueError, match="made in another basis"):
        gp.build(2.0 * X, statistics=stats)
    found, _ = rotated(plain.summarize(X, Y, progressbar=False))  # the eigenfunctions are the same
    assert found.likelihood_path == "rotated"
    with pytest.raises(ValueError, match="built on other rows than X"):
        found.marginal_likelihood("z", X, Y, 0.3)


def test_statistics_of_another_slope_are_refused():
    """In a column that the kernel does not look at: all inputs that tell a basis had 0 there."""
    kernel = pm.gp.cov.ExpQuad(2, ls=0.6, active_dims=[0])
    made = [
        sgp.GriefGP(
            mean_func=pm.gp.mean.Linear(np.array([0.3, slope])), cov_func=kernel, approx="DTC", rank=9
        )
        for slope in (0.1, 0.2)
    ]
    for gp in made:
        gp.build(X)
    statistics = made[0].summarize(X, Y, progressbar=False)
    with pm.Model(), pytest.raises(ValueError, match="made in another basis"):
        made[1].marginal_likelihood("y", statistics=statistics, sigma=0.3)


def test_rows_beyond_the_grid_are_refused():
    with pm.Model():
        gp, _ = make("frozen", rows=X[np.abs(X).max(axis=1) < 0.7])
        with pytest.raises(ValueError, match=r"beyond the grid.*spans the range"):
            gp.summarize(X, Y)


@pytest.mark.parametrize("kind", [sgp.GriefGP, sgp.SoftKIMarginal])
def test_labels_that_the_sample_lacks_are_refused(kind):
    """Between those that it has, too, where the ends of the range say nothing."""
    rows = np.column_stack([X[:, 0], np.arange(N) % 3])
    cov = sgp.cov.PerGroup(pm.gp.cov.Matern52, 2, ls=0.5, group_dim=1)
    gp = kind(cov_func=cov, approx="DTC", **({"inducing": 12} if kind is sgp.SoftKIMarginal else {}))
    with pm.Model():
        gp.build(rows[rows[:, 1] != 1.0])
        gp.summarize(rows[rows[:, 1] == 2.0], Y[rows[:, 1] == 2.0], progressbar=False)
        with pytest.raises(ValueError, match=r"column 1 holds 1, which .* a sample of rows that spans"):
            gp.summarize(rows, Y, progressbar=False)


def test_what_needs_the_rows_refuses_statistics(softki):
    model, gp, sigma = softki
    cov = pm.gp.cov.ExpQuad(D, ls=0.7)
    with model:
        gp = sgp.SoftKIMarginal(cov_func=gp.cov_func, inducing=Z, temperature=0.3, approx="DTC")
        gp.build(X)
        stats = gp.summarize(X, Y)
        free = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(D, ls=model["ell"]), approx="DTC", rank=5)
        free.build(X)
        for bad, text in [
            (sgp.VecchiaMarginal(cov_func=cov), 'approx="DTC"'),
            (sgp.SoftKIMarginal(cov_func=cov, inducing=Z, approx="FITC"), 'approx="DTC"'),
            (sgp.KMCGMarginal(cov_func=cov), "targets of all rows"),
            (sgp.SKIPMarginal(cov_func=cov, approx="DTC", n_iter=10), "features of one function"),
            (
                sgp.SKIPMarginal(cov_func=cov, approx="DTC", task_dim=1, task_cov=np.ones((2, 1))),
                "features of one function",
            ),
            (sgp.SoftKIMarginal(cov_func=cov, inducing=Z), "build"),
            (free, "free parameters"),
        ]:
            with pytest.raises(ValueError, match=text):
                bad.summarize(iter([(X, Y)]))
            with pytest.raises(ValueError, match=text):
                bad.marginal_likelihood("bad", statistics=stats, sigma=sigma)
        for options, text in [
            ({"X": X, "y": Y, "sigma": sigma}, "leave X and y out"),
            ({}, "give sigma"),
            ({"sigma": sigma, "dims": "row"}, "dims"),
        ]:
            with pytest.raises(TypeError, match=text):
                gp.marginal_likelihood("bad", statistics=stats, **options)
        with pytest.raises(ValueError, match="scalar sigma"):
            gp.marginal_likelihood("bad", statistics=stats, sigma=np.full(N, 0.1))
        with pytest.raises(TypeError, match="gp.summarize"):
            gp.marginal_likelihood("bad", statistics=X, sigma=sigma)
        with pytest.raises(TypeError, match="X, y and sigma, or statistics"):
            gp.marginal_likelihood("bad", sigma=sigma)
        bent = sgp.SoftKIMarginal(
            mean_func=pm.gp.mean.Linear(model["ell"] * np.ones(D)) * pm.gp.mean.Constant(2.0),
            cov_func=cov, inducing=Z,
        )  # fmt: skip
        bent.build(X)
        with pytest.raises(ValueError, match="not linear"):
            bent.summarize(X, Y)


def test_draws_and_a_check():
    with pm.Model() as model:
        gp, _ = make("weights", "constant")
        gp.marginal_likelihood("y", statistics=gp.summarize(X, Y), sigma=0.3)
        with pytest.raises(ValueError, match="statistics alone"):
            gp.check()
        assert gp.check(X=X, progressbar=False).attrs["rank"] == gp.rank
    # U'(Phi beta + e + c 1) has as many coordinates as directions, and the variance of all of them.
    draws = draw_many(pm.do(model, {"c": 0.0})["y"], 4000, 1)
    phi = gp.features(X).eval()
    values = np.linalg.svd(phi)[1] ** 2 + 0.3**2
    assert draws.shape == (4000, gp.rank)
    np.testing.assert_allclose(draws.var(axis=0), values, rtol=6 * np.sqrt(2 / 4000))


# -- marks of a basis, as numbers --------------------------------------------------------------------

YEARS = np.linspace(2000.0, 2001.0, 5)[:, None]
VALUES = np.column_stack([np.ones(5), 1e-9 * np.linspace(-1.0, 1.0, 5), np.zeros(5)])  # the mean is zero


def statistics_of(inputs=YEARS, values=VALUES):
    """Statistics of ten rows in two functions."""
    return RowStatistics(np.eye(3), 10, inputs[0], inputs[-1], BasisMark(inputs, values, 2, 0))


@pytest.mark.parametrize(
    ("inputs", "values", "words"),
    [
        # Other machines' rounding, of the size of the largest function: a thousandth of the small one.
        (0.0, [1e-12, 1e-12, 0.0], None),
        (1e-9, 0.0, None),
        (0.0, [1e-6, 0.0, 0.0], "functions have other values"),
        (0.0, [0.0, 0.0, 1e-3], "mean's functions have other values"),
        (1e-4, 0.0, "another range"),  # of a year, whatever the number of the year
    ],
)
def test_what_makes_another_basis(inputs, values, words):
    own, other = statistics_of(), statistics_of(YEARS + inputs, VALUES + values)
    found = own.mark.difference(other.mark)
    assert found is None if words is None else words in found
    if words is not None:
        for verb, operation in (("add", own.__add__), ("subtract", own.__sub__)):
            with pytest.raises(ValueError, match=f"cannot {verb} statistics of another basis: .*{words}"):
                operation(other)


def test_bases_of_other_widths_are_told_apart_by_them():
    own = statistics_of().mark
    two = np.column_stack([YEARS, YEARS])
    assert own.difference(BasisMark(two, VALUES, 2, 0)) == "inputs have 1 columns, not 2"
    assert own.difference(BasisMark(YEARS, VALUES, 1, 1)) == "the basis has 2 functions, not 1"
    wider = np.column_stack([VALUES, VALUES[:, 2]])
    assert own.difference(BasisMark(YEARS, wider, 2, 1)) == "the mean has 0 coefficients, not 1"


def test_what_statistics_are_not_added_to_or_taken_from():
    own = statistics_of()
    assert 0 + own is own  # where sum() begins
    with pytest.raises(TypeError):
        1 + own
    with pytest.raises(ValueError, match="cannot take 10 rows from 10: none would be left"):
        own - own
