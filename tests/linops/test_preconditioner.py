"""Frozen low-rank preconditioners."""

import numpy as np

from pymc_scalable_gp.linops.preconditioner import LowRankPreconditioner


def test_the_preconditioner_is_the_inverse_root():
    rng = np.random.default_rng(0)
    F = rng.standard_normal((9, 4))
    exact = np.eye(9) + F @ F.T
    for P in (
        LowRankPreconditioner.from_factor(F),
        LowRankPreconditioner.from_products(lambda V: F @ (F.T @ V), 9, 4),
    ):
        root = P.root_inverse(np.eye(9))
        np.testing.assert_allclose(root @ exact @ root, np.eye(9), atol=1e-10)
        np.testing.assert_allclose(P.logdet, np.linalg.slogdet(exact)[1], rtol=1e-10)
