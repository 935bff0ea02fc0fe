"""Sums over segments' rows, and products of rows with their segment's matrix."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops.segments import SegmentGram, SegmentTimes, segment_gram, segment_times
from pymc_scalable_gp.testing import check_op

COUNT = 4
SEGMENT = np.array([2, 0, 2, 3, 0, 0, 2, 3, 2])  # segment 1 has no rows
HOT = np.eye(COUNT)[SEGMENT]


@pytest.mark.parametrize("n", [9, 1, 0])
def test_gram(n):
    rng, segment, hot = np.random.default_rng(0), SEGMENT[:n], HOT[:n]

    def case(a, b, step=1):
        return rng.standard_normal((n * step, a))[::step], rng.standard_normal((n, b))

    check_op(
        SegmentGram,
        lambda A, W: segment_gram(A, W, segment, COUNT),
        lambda A, W: np.einsum("ns,na,nb->sab", hot, A, W),
        [case(2, 3), case(12, 1), case(1, 2, step=2)],
        twin=lambda A, W: pt.stack([(A * h[:, None]).T @ W for h in hot.T]),
        rtol=1e-13,
        modes=("NUMBA", BY_OPS) if n == 9 else (BY_OPS,),
        jax_cases=1,
    )


@pytest.mark.parametrize("n", [9, 1, 0])
def test_times(n):
    rng, segment, hot = np.random.default_rng(1), SEGMENT[:n], HOT[:n]

    def case(a, b, step=1):
        return rng.standard_normal((COUNT, a, b * step))[:, :, ::step], rng.standard_normal((n, b))

    check_op(
        SegmentTimes,
        lambda G, W: SegmentTimes(COUNT)(G, W, segment),
        lambda G, W: np.einsum("ns,sab,nb->na", hot, G, W),
        [case(2, 3), case(1, 12), case(3, 2, step=2)],
        twin=lambda G, W: sum(h[:, None] * (W @ G[s].T) for s, h in enumerate(hot.T)),
        rtol=1e-13,
        modes=("NUMBA", BY_OPS) if n == 9 else (BY_OPS,),
        jax_cases=1,
    )


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA", "JAX"])
@pytest.mark.parametrize("bad", [-1, COUNT])
def test_segments_that_do_not_exist_give_nan(mode, bad):
    if mode == "JAX":
        pytest.importorskip("jax")
    segment = pt.lvector()
    rows, G = pt.constant(np.ones((3, 2))), pt.constant(np.ones((COUNT, 2, 2)))
    outputs = [segment_gram(rows, rows, segment, COUNT), segment_times(G, rows, segment)]
    for value in pytensor.function([segment], outputs, mode=mode)(np.array([0, bad, 1])):
        assert np.isnan(np.asarray(value)).all()


def test_segments_that_are_no_integers_are_refused():
    rows, segment = np.ones((2, 2)), np.array([0.9, 0.0])
    for build in (
        lambda: segment_gram(rows, rows, segment, 2),
        lambda: segment_times(np.ones((2, 2, 2)), rows, segment),
    ):
        with pytest.raises(TypeError, match="segment must hold integers, got float64"):
            build()


@pytest.mark.parametrize(
    ("count", "error", "words"),
    [
        (2.9, TypeError, "count must be an int, got float 2.9"),
        (True, TypeError, "count must be an int, got bool True"),
        (-1, ValueError, "count must be at least 0, got -1"),
    ],
)
def test_numbers_of_segments_that_are_none(count, error, words):
    """2.9 were two."""
    rows, segment = np.ones((2, 2)), np.array([1, 0])
    with pytest.raises(error, match=words):
        segment_gram(rows, rows, segment, count)
    assert segment_gram(rows, rows, segment, np.int64(2)).type.shape == (2, 2, 2)


def test_matrices_of_an_unknown_number_of_segments():
    """It would come to light at run time, in Numba's words."""
    G, rows, segment = pt.dtensor3(), np.ones((2, 2)), np.array([1, 0])
    with pytest.raises(TypeError, match=r"G must have a known .* got shape \(None, None, None\): give"):
        segment_times(G, rows, segment)
    out = segment_times(pt.specify_shape(G, (2, None, None)), rows, segment)
    value = np.stack([np.eye(2), 3.0 * np.eye(2)])
    np.testing.assert_array_equal(out.eval({G: value}), [[3.0, 3.0], [1.0, 1.0]])
