"""Features of a stationary kernel without its matrix, against the matrix."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops._stationary import KINDS, SHAPED
from pymc_scalable_gp.ops.stationary_features import StationaryFeatures, stationary_features
from pymc_scalable_gp.ops.stationary_kernel import stationary_kernel
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON


@pytest.mark.parametrize(
    ("kind", "modes"),
    [(kind, (BY_OPS,) if kind == "RatQuad" else ()) for kind in KINDS]
    + [pytest.param(kind, ("NUMBA",), marks=pytest.mark.slow) for kind in ("Arc", "RatQuad")],
)
def test_features(kind, modes):
    rng = np.random.default_rng(0)
    X, Z, root = (0.3 * rng.standard_normal(shape) for shape in ((9, 2), (4, 2), (3, 4)))

    def twin(rates, shape, root):
        return stationary_kernel(kind, X, Z, 1.0 / rates, shape) @ root.T

    def reference(rates, shape, root):
        K = stationary_kernel(kind, X, Z, 1.0 / rates, pt.as_tensor(shape))
        return K.eval(mode=IN_PYTHON) @ root.T

    check_op(
        StationaryFeatures, lambda *inputs: stationary_features(kind, X, Z, *inputs), reference,
        [(np.array([0.7, 1.6]), np.array(2.2), root)], twin=twin,
        jax_cases=kind in (*SHAPED, "Matern52"), modes=modes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("n", "d", "m", "r"), [(700, 3, 5, 5), (4, 1, 0, 2), (0, 2, 3, 1), (3, 0, 2, 2), (20, 70, 6, 0)]
)
def test_edge_sizes(n, d, m, r):
    """Several blocks of rows; nothing of each length; more inputs than distances take one by one."""
    rng = np.random.default_rng(1)
    X, Z, root = (rng.standard_normal(shape) for shape in ((n, d), (m, d), (r, m)))
    rates = pt.dvector()
    total = (stationary_features("Matern52", X, Z, rates, 1.0, root) ** 2).sum()
    outputs = [total, pt.grad(total, rates)]
    fast, slow = (
        pytensor.function([rates], outputs, mode=mode)(np.full(d, 0.3)) for mode in (BY_OPS, IN_PYTHON)
    )
    K = stationary_kernel("Matern52", X, Z, np.full(d, 1 / 0.3)).eval(mode=IN_PYTHON)
    assert_allclose(slow[0], ((K @ root.T) ** 2).sum(), rtol=1e-10)
    for a, b in zip(fast, slow, strict=True):
        assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_unknown_kind():
    with pytest.raises(ValueError, match="kind must be one of"):
        stationary_features("Cosine", np.ones((2, 1)), np.ones((1, 1)), [1.0], 1.0, np.eye(1))
