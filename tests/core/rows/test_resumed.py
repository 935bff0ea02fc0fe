"""A pass that goes on inside a block, a file that is whole or not there, and digits of a basis."""

import numpy as np
import pymc as pm
import pytest

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.rows import sources
from pymc_scalable_gp.core.rows.statistics import RowStatistics

N = 130
RNG = np.random.default_rng(3)
X = RNG.uniform(-1.0, 1.0, (N, 2))
Y = np.sin(3.0 * X[:, 0]) + RNG.standard_normal(N)
Z = RNG.uniform(-1.0, 1.0, (6, 2))
SEEN = 47  # rows of the checkpoint: in the middle of a block of every source below


@pytest.fixture(scope="module")
def gp():
    found = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7), inducing=Z, temperature=0.3)
    found.build(X)
    return found


def same(a, b):
    assert a.size == b.size
    np.testing.assert_allclose(a.triangle.T @ a.triangle, b.triangle.T @ b.triangle, rtol=1e-10, atol=1e-9)
    np.testing.assert_array_equal([a.low, a.high], [b.low, b.high])


def iterated(folder):
    return [(X[i : i + 20], Y[i : i + 20]) for i in range(0, N, 20)], {}


def parquet(folder):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y}).to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet", {"y": "y"}


@pytest.mark.parametrize("make", [iterated, parquet])
def test_a_pass_goes_on_inside_a_block(gp, make, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 20)
    source, options = make(tmp_path)
    gp.summarize(X[:SEEN], Y[:SEEN], progressbar=False).save(tmp_path / "half")
    found = gp.summarize(source, **options, checkpoint=tmp_path / "half", progressbar=False)
    same(found, gp.summarize(X, Y, progressbar=False))


def test_a_checkpoint_of_more_rows_than_an_iterator_gives_is_refused(gp, tmp_path):
    """Its statistics were returned."""
    gp.summarize(X[:SEEN], Y[:SEEN], progressbar=False).save(tmp_path / "half")
    with pytest.raises(ValueError, match="has 7 rows more than the iterator"):
        gp.summarize(iter([(X[:40], Y[:40])]), checkpoint=tmp_path / "half", progressbar=False)
    assert RowStatistics.load(tmp_path / "half").size == SEEN


def test_two_blocks_in_a_tuple_are_no_pair(gp):
    blocks = (X[:50], Y[:50]), (X[50:], Y[50:])
    same(gp.summarize(blocks, progressbar=False), gp.summarize(X, Y, progressbar=False))


@pytest.mark.parametrize("make", [iterated, parquet])
def test_blocks_of_a_source_from_any_row_on(make, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 20)
    source = sources.open_source(*make(tmp_path)[:1], **make(tmp_path)[1])
    for start in (0, 19, 20, 21, SEEN, N - 1):
        blocks = list(source.blocks(start))
        np.testing.assert_array_equal(np.concatenate([b.X for b in blocks]), X[start:])
        np.testing.assert_array_equal(np.concatenate([b.y for b in blocks]), Y[start:])
        assert [b.start for b in blocks] == list(np.cumsum([start, *(len(b.y) for b in blocks[:-1])]))


def test_a_save_that_fails_leaves_the_old_file(gp, tmp_path, monkeypatch):
    """And no half of a new one under its name."""
    stats = gp.summarize(X, Y, progressbar=False)
    part = gp.summarize(X[:50], Y[:50], progressbar=False)
    part.save(tmp_path / "rows")
    original = np.savez

    def failing(file, **arrays):
        original(file, **{"format": arrays["format"]})
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", failing)
    for name in ("rows", "new"):
        with pytest.raises(OSError, match="no space"):
            stats.save(tmp_path / name)
    assert RowStatistics.load(tmp_path / "rows").size == 50
    assert not (tmp_path / "new").exists()


def test_digits_of_nearly_collinear_columns(gp):
    """Two points 1e-5 apart: QR of the rows knows what tells them apart, a Gram matrix does not."""
    near = np.vstack([Z, Z[:1] + 1e-5])
    fine = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7), inducing=near, temperature=0.3)
    fine.build(X)
    stats = fine.summarize(X, Y, progressbar=False)
    basis = fine.feature_map.basis(pm.pytensorf.pt.as_tensor(X)).eval()
    found = np.linalg.svd(stats.triangle[:, :-1], compute_uv=False)
    expected = np.linalg.svd(basis, compute_uv=False)
    assert expected[-1] < 1e-4 * expected[0]
    np.testing.assert_allclose(found[: len(expected)], expected, rtol=1e-9)
    parts = [fine.summarize(X[i::2], Y[i::2], progressbar=False) for i in range(2)]
    merged = np.linalg.svd(sum(parts).triangle[:, :-1], compute_uv=False)
    np.testing.assert_allclose(merged[: len(expected)], expected, rtol=1e-9)


def test_rows_in_float32_with_an_offset_are_warned_of():
    far = (X + 1e6).astype("float32")
    gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7), inducing=Z + 1e6)
    gp.build(far.astype(float))
    blocks = [(far[:60], Y[:60]), (far[60:], Y[60:])]  # of which the first one tells
    with pytest.warns(match="float32, in which column 0"), pytest.warns(match="column 1") as found:
        gp.summarize(blocks, progressbar=False)
    assert len(found) == 2


def test_files_and_folders_that_are_not_there_are_named(gp, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="rows.csv is no Parquet file that can be read"):
        gp.summarize(tmp_path / "rows.csv", "b", progressbar=False)
    with pytest.raises(FileNotFoundError, match="checkpoint=.* is in no folder that exists"):
        gp.summarize(iterated(None)[0], checkpoint=tmp_path / "no" / "half", progressbar=False)


def test_rows_beyond_the_build_of_inducing_points_are_refused():
    """Where these hold no prior variance: as they are of arrays."""
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7), n_inducing=6, approx="DTC")
    gp.build(X)
    with pytest.raises(ValueError, match="column 0 reaches .* beyond the inputs of the build"):
        gp.summarize(1.2 * X, Y, progressbar=False)
    gp.summarize(1.02 * X, Y, progressbar=False)


def test_blocks_without_rows_are_passed_over_and_columns_stay():
    rows, y = np.arange(10.0).reshape(5, 2), np.arange(5.0)
    pairs = [(rows[:3], y[:3]), (rows[:0], y[:0]), (rows[3:], y[3:])]
    assert [(block.start, len(block.y)) for block in sources.open_source(iter(pairs)).blocks()] == [
        (0, 3),
        (3, 2),
    ]
    other = iter([pairs[0], (rows[3:, :1], y[3:])])
    with pytest.raises(ValueError, match=r"block 1 \(rows from 3\): X has 1 columns, the blocks before 2"):
        list(sources.open_source(other).blocks())
