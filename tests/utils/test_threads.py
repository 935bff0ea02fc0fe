"""Compiled functions that threads call at once."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.executor import Function
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from threadpoolctl import threadpool_info

from pymc_scalable_gp.utils.threads import ForThreads, one_blas_thread


class Meet(Op):
    """A vector, unless it is negative, once two threads are here."""

    __props__ = ()

    def __init__(self):
        self.barrier = Barrier(2, timeout=60)

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        if (inputs[0] < 0.0).any():
            raise ValueError("negative")
        self.barrier.wait()
        output_storage[0][0] = inputs[0]


@pytest.fixture
def copies(monkeypatch):
    """The copies that are made, one entry each."""
    made, copy = [], Function.copy

    def counted(self, *args, **kwargs):
        made.append(self)
        return copy(self, *args, **kwargs)

    monkeypatch.setattr(Function, "copy", counted)
    return made


def test_threads_run_one_function_at_once_each_with_its_own_storage(copies):
    x = pt.vector(dtype="float64")
    function = ForThreads([x], Meet()(x) + 1.0 * x)
    assert not copies
    given = [np.full(3, float(k)) for k in range(40)]
    for _ in range(2):  # other threads take the copy that is there
        with ThreadPoolExecutor(2) as pool:
            for value, found in zip(given, pool.map(function, given), strict=True):
                np.testing.assert_array_equal(found, 2.0 * value)
    assert len(copies) == 1
    with pytest.raises(ValueError, match="negative"):
        function(-np.ones(3))
    with ThreadPoolExecutor(2) as pool:
        assert len(list(pool.map(function, given))) == 40
    assert len(copies) == 1  # a function that has raised is used again


def test_one_thread_has_the_function_itself(copies):
    x = pt.vector(dtype="float64")
    function = ForThreads([x], [2.0 * x])
    for _ in range(3):
        np.testing.assert_array_equal(function(np.ones(2))[0], [2.0, 2.0])
    assert function.compiled is function.compiled
    assert not copies
    again = pickle.loads(pickle.dumps(function))
    np.testing.assert_array_equal(again(np.ones(2))[0], [2.0, 2.0])
    assert again.compiled is not function.compiled


def test_blas_runs_in_one_thread_meanwhile():
    def counts():
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    before = counts()
    with one_blas_thread():
        assert set(counts()) == {1}
    assert counts() == before
