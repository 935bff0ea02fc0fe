"""1-D factors of pm.gp.cov kernels against the kernels themselves."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_scalable_gp as sgp
from pymc_scalable_gp.cov import product_terms

C = pm.gp.cov
RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(5, 3)), RNG.normal(size=(4, 3))


def dense(terms):
    """Kernel matrix of a sum of product terms."""
    total = 0.0
    for term in terms:
        part = term.scale * pt.ones((len(A), len(B)))
        if term.dims:
            a, b = (pt.constant(x[:, term.dims].T) for x in (A, B))
            part = part * pt.prod(term.gram(a, b), axis=0)
        total = total + part
    return pytensor.function([], total, mode="FAST_COMPILE")()


KERNELS = {
    "ard": C.ExpQuad(3, ls=[0.5, 1.0, 2.0]),
    "isotropic": C.ExpQuad(3, ls=0.7),
    "scaled": 4.0 * C.ExpQuad(3, ls=[0.5, 1.0, 2.0]) * 0.5,
    "constant factor": C.Constant(2.0) * C.ExpQuad(3, ls=1.0),
    "active dims": C.ExpQuad(3, ls=[0.5, 2.0], active_dims=[2, 0]),
    "matern product": C.Matern52(3, ls=0.6, active_dims=[0])
    * C.Matern32(3, ls=2.0, active_dims=[2]),
    "same matern": sgp.cov.Product(C.Matern12, 3, ls=np.array([0.5, 1.0, 2.0])),
    "two on one column": C.ExpQuad(3, ls=1.0, active_dims=[1])
    * C.Cosine(3, ls=2.0, active_dims=[1]),
    "periodic": C.Periodic(3, period=np.array([1.0, 2.0, 3.0]), ls=0.8),
    "rational quadratic": C.RatQuad(3, alpha=0.5, ls=0.9, active_dims=[1]) * C.ExpQuad(3, ls=1.0),
    "power": C.ExpQuad(3, ls=[0.5, 1.0, 2.0]) ** 2,
    "linear 1-D": C.Linear(3, c=0.3, active_dims=[1]) * C.ExpQuad(3, ls=1.0, active_dims=[0]),
    "warped": C.WarpedInput(
        3, cov_func=C.Matern52(1, ls=0.5), warp_func=lambda x: x**3, active_dims=[0]
    ),
    "sum": 2.0 * C.ExpQuad(3, ls=1.0) + sgp.cov.Product(C.Matern52, 3, ls=0.5) + 1.5,
    "sum of 1-D": C.ExpQuad(3, ls=1.0, active_dims=[1]) + C.Linear(3, c=0.0, active_dims=[1]),
    "product of sums": (
        C.ExpQuad(3, ls=1.0, active_dims=[0]) + C.Matern32(3, ls=2.0, active_dims=[1])
    )
    * (0.5 * C.Exponential(3, ls=1.0, active_dims=[2])),
}


@pytest.mark.filterwarnings("ignore:Only 1 column")
@pytest.mark.parametrize("name", KERNELS)
def test_terms_reproduce_the_kernel(name):
    kernel = KERNELS[name]
    exact = pytensor.function([], kernel(pt.constant(A), pt.constant(B)), mode="FAST_COMPILE")()
    # pm.gp forms distances by expanding squares and so loses a few digits.
    np.testing.assert_allclose(dense(product_terms(kernel)), exact, rtol=1e-9, atol=1e-12)


def test_ard_lengthscales_stay_one_vector():
    ls = pt.vector("ls", shape=(3,))
    (term,) = product_terms(C.ExpQuad(3, ls=ls))
    assert [len(group) for group in term.groups] == [3]


def test_random_scale_and_lengthscale_stay_symbolic():
    eta, ls = pt.dscalar("eta"), pt.dscalar("ls")
    (term,) = product_terms(eta**2 * C.ExpQuad(2, ls=ls))
    scale = pytensor.function([eta], term.scale, mode="FAST_COMPILE")
    assert scale(3.0) == 9.0


@pytest.mark.parametrize(
    ("kernel", "match"),
    [
        (lambda: C.Matern52(2, ls=1.0), r"Matern52 on 2 dimensions.*sgp\.cov\.Product"),
        (lambda: C.RatQuad(2, alpha=1.0, ls=1.0), "RatQuad on 2 dimensions"),
        (lambda: C.Linear(2, c=0.0), "Linear on 2 dimensions"),
        (lambda: C.ExpQuad(2, ls=1.0) + C.WhiteNoise(0.1), "sigma="),
        (lambda: C.ExpQuad(2, ls=1.0) * np.ones((3, 3)), r"array of shape \(3, 3\)"),
    ],
)
def test_refusals_name_the_way_out(kernel, match):
    with pytest.raises(ValueError, match=match):
        product_terms(kernel())


def test_product_checks_lengths():
    with pytest.raises(ValueError, match="does not match 3 active dimensions"):
        sgp.cov.Product(C.Matern52, 3, ls=np.ones(2))
    with pytest.raises(ValueError, match="2 active dimensions"):
        sgp.cov.Product(C.Matern52, 3, active_dims=[0, 2], ls=np.ones(3))
