"""Cholesky factors of stacked matrices: values, gradients, back-ends, failure."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops.stacked_cholesky import StackedCholesky, cholesky, stacked_cholesky
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON


def test_op():
    """Of matrices that are not symmetric, so that a gradient of one triangle alone would show."""
    rng = np.random.default_rng(0)

    def base(d, m):
        return (rng.standard_normal((d, m, m)) + 4.0 * m * np.eye(m),)

    strided = (np.repeat(base(3, 4)[0], 2, axis=2)[:, :, ::2],)
    check_op(
        StackedCholesky,
        stacked_cholesky,
        lambda A: np.linalg.cholesky(0.5 * (A + A.swapaxes(1, 2))),
        [base(2, 4), base(1, 1), strided],
        twin=lambda A: pt.linalg.cholesky(0.5 * (A + A.swapaxes(1, 2))),
        rtol=1e-13,
        grad_rtol=1e-11,
        jax_cases=1,
    )


@pytest.mark.parametrize("mode", [IN_PYTHON, "NUMBA"])
def test_failure_gives_nan_and_leaves_the_others(mode):
    a = pt.tensor3(dtype="float64")
    function = pytensor.function([a], stacked_cholesky(a), mode=mode)
    bad = [np.diag(x) for x in ([1.0, np.nan], [1.0, np.inf], [1.0, -1.0], [1.0, 0.0])]
    found = function(np.stack([4.0 * np.eye(2), *bad]))
    assert_allclose(found[0], 2.0 * np.eye(2))
    assert np.isnan(found[1:]).all()
    for shape in ((0, 3, 3), (2, 0, 0)):
        assert function(np.ones(shape)).shape == shape


def test_one_matrix():
    found = cholesky(np.diag([4.0, 9.0]))
    assert found.type.shape == (2, 2)
    assert_allclose(found.eval(), np.diag([2.0, 3.0]))


def test_needs_stacks():
    with pytest.raises(TypeError, match=r"StackedCholesky needs inputs of shapes \(d, m, m\)"):
        stacked_cholesky(np.eye(2))
