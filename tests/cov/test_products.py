"""Product terms of pm.gp.cov kernels against PyMC's own kernel matrices."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from pymc.gp import cov as c

import pymc_scalable_gp as sgp
from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.utils.compiled import FEW_CALLS

RNG = np.random.default_rng(0)
A, B = RNG.uniform(0.1, 2.0, (4, 3)), RNG.uniform(0.1, 2.0, (5, 3))
ELL = np.array([0.5, 1.1, 2.0])


def warp(x, a, b):
    return x + a * pt.tanh(b * x)


def lengthscale(x):
    return 0.5 + x**2


def on(dim):
    return {"input_dim": 3, "active_dims": [dim]}


KERNELS = {
    "ARD": lambda: c.ExpQuad(3, ls=ELL),
    "one lengthscale": lambda: c.ExpQuad(3, ls=0.5),
    "integer lengthscale": lambda: c.ExpQuad(3, ls=2),
    "some columns": lambda: c.ExpQuad(3, ls=ELL[:2], active_dims=[2, 0]),
    "columns in another order": lambda: c.ExpQuad(3, ls=ELL, active_dims=[1, 0, 2]),
    "scaled": lambda: 1.7 * c.ExpQuad(3, ls=ELL) * 0.5,
    "scaled by a tensor": lambda: pt.constant(0.3) ** 2 * c.ExpQuad(3, ls=ELL),
    "one dimension": lambda: c.Matern52(ls=0.7, **on(1)),
    "Matern on disjoint columns": lambda: (
        c.Matern52(ls=0.7, **on(0)) * c.Matern32(ls=1.3, **on(1)) * c.Matern12(ls=0.4, **on(2))
    ),
    "same class, own lengthscales": lambda: c.Matern32(ls=0.7, **on(2)) * c.Matern32(ls=2.0, **on(0)),
    "disjoint ExpQuads": lambda: (
        c.ExpQuad(3, ls=ELL[:2], active_dims=[0, 2]) * c.ExpQuad(3, ls=0.9, active_dims=[1])
    ),
    "two on one column": lambda: c.ExpQuad(ls=0.7, **on(1)) * c.Matern52(ls=0.9, **on(1)),
    "Periodic": lambda: c.Periodic(3, period=1.3, ls=0.8),
    "Periodic ARD": lambda: c.Periodic(3, period=np.array([1.0, 2.0, 3.0]), ls=ELL),
    "Periodic by ExpQuad": lambda: c.Periodic(period=1.3, ls=0.8, **on(1)) * c.ExpQuad(3, ls=ELL),
    "Cosine and Exponential": lambda: c.Cosine(ls=2.0, **on(0)) * c.Exponential(ls=0.6, **on(1)),
    "RatQuad": lambda: c.RatQuad(alpha=0.7, ls=0.8, **on(2)),
    "Linear": lambda: c.Linear(c=0.3, **on(0)),
    "Polynomial by Matern": lambda: (
        c.Polynomial(c=0.3, d=2, offset=0.5, **on(0)) * c.Matern52(ls=0.7, **on(1))
    ),
    "WarpedInput": lambda: c.WarpedInput(
        cov_func=c.Matern52(1, ls=0.7), warp_func=warp, args=(0.3, 2.0), **on(1)
    ),
    "Gibbs": lambda: c.Gibbs(lengthscale_func=lengthscale, **on(2)),
    "Exponentiated": lambda: c.ExpQuad(3, ls=ELL) ** 1.5,
    "Exponentiated Matern": lambda: c.Matern52(ls=0.7, **on(1)) ** 2,
    "power of a scaled product": lambda: (
        (1.7 * sgp.cov.Product(c.Matern52, 3, ls=ELL) * c.Constant(0.6)) ** 1.5
    ),
    "power of a product scaled by 2": lambda: (2.0 * c.ExpQuad(3, ls=ELL)) ** 1.5,
    "sum": lambda: 2.0 * c.ExpQuad(3, ls=ELL) + 0.5 * c.Matern32(ls=0.7, **on(1)),
    "sum with a constant": lambda: c.ExpQuad(3, ls=ELL) + 0.4,
    "sum with Constant": lambda: c.Constant(0.4) + c.ExpQuad(3, ls=ELL),
    "sum by a kernel": lambda: (
        (c.ExpQuad(ls=0.7, **on(0)) + c.Matern52(ls=0.9, **on(1))) * c.ExpQuad(ls=0.4, **on(2))
    ),
    "sum by a sum": lambda: (
        (c.ExpQuad(3, ls=ELL) + 0.5) * (c.ExpQuad(3, ls=2.0) + c.Cosine(ls=1.0, **on(0)))
    ),
    "nested products": lambda: 2.0 * (3.0 * (c.ExpQuad(ls=0.7, **on(0)) * 0.5) * c.Cosine(ls=1.0, **on(2))),
    "Kron": lambda: c.Kron([c.ExpQuad(2, ls=ELL[:2]), c.Matern52(1, ls=0.7)]),
    "Kron of sums": lambda: (
        1.3
        * c.Kron([c.ExpQuad(2, ls=2.0, active_dims=[-1]) + c.ExpQuad(2, ls=ELL[:2]), c.Cosine(1, ls=1.0)])
    ),
    "power of Kron by a kernel": lambda: (
        (
            1.2
            * c.Kron(
                [2.0 * c.Matern52(1, ls=0.7), c.Kron([c.Linear(1, c=0.0), c.RatQuad(1, alpha=1.0, ls=0.5)])]
            )
        )
        ** 1.5
        * c.Matern52(ls=0.7, **on(1))
    ),
    "Product": lambda: sgp.cov.Product(c.Matern52, 3, ls=ELL),
    "Product, one lengthscale": lambda: sgp.cov.Product(c.Matern32, 3, ls=0.6),
    "Product, some columns": lambda: sgp.cov.Product(
        c.RatQuad, 3, active_dims=[0, 2], ls=ELL[:2], alpha=0.5
    ),
}


def expand(terms, a, b):
    total = 0.0
    for term in terms:
        gram = term.scale * pt.ones((len(a), len(b)))
        if term.dims:
            gram = gram * term.gram(pt.constant(a.T[term.dims]), pt.constant(b.T[term.dims])).prod(axis=0)
        total = total + gram
    return total


@pytest.mark.parametrize("name", KERNELS)
def test_terms_add_up_to_the_kernel_matrix(name, monkeypatch):
    # PyMC adds 1e-12 below the root; these kernels are the exact ones.
    monkeypatch.setattr(c.Stationary, "_sqrt", lambda self, r2: pt.sqrt(r2))
    kernel = KERNELS[name]()
    own = expand(product_terms(kernel), A, B)
    found, expected = pytensor.function([], [own, kernel(A, B)], mode=FEW_CALLS)()
    # pm.gp.cov forms |x - z|^2 by the binomial formula, with rounding of 1e-16 * |x|^2 / ls^2.
    assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("ARD", [[0, 1, 2]]),
        ("some columns", [[0, 2]]),
        ("two on one column", [[1]]),
        ("sum", [[0, 1, 2], [1]]),
        ("sum with a constant", [[0, 1, 2], []]),
        ("sum by a kernel", [[0, 2], [1, 2]]),
        ("Kron of sums", [[1, 2], [0, 1, 2]]),
    ],
)
def test_columns_of_the_terms(name, dims):
    assert [sorted(term.dims) for term in product_terms(KERNELS[name]())] == dims


@pytest.mark.parametrize("places", [[0], [0, 1], [1], [0, 2]])
def test_restricted_terms_have_the_lengthscales_of_their_own_columns(places):
    rng = np.random.default_rng(8)
    ell = pytensor.shared(np.array([0.3, 1.1, 2.0]))
    (term,) = product_terms(c.ExpQuad(3, ls=ell))
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((3, 5))
    want = term.gram(a, b).eval(mode=FEW_CALLS)[places]
    found = term.restricted(places).gram(a[places], b[places]).eval(mode=FEW_CALLS)
    assert_allclose(found, want, rtol=1e-14)


def test_random_parameters_keep_their_gradient():
    ell, eta = pt.vector(dtype="float64"), pt.scalar(dtype="float64")
    kernel = eta**2 * c.ExpQuad(3, ls=ell) + c.Matern32(ls=ell[0], **on(1))
    losses = [expand(product_terms(kernel), A, B).sum(), kernel(A, B).sum()]
    grads = [g for loss in losses for g in pt.grad(loss, [ell, eta])]
    found = pytensor.function([ell, eta], grads, mode=FEW_CALLS)(ELL, 1.3)
    assert_allclose(found[0], found[2], rtol=1e-9)
    assert_allclose(found[1], found[3], rtol=1e-9)


def test_product_is_not_the_isotropic_matern():
    product = sgp.cov.Product(c.Matern52, 3, ls=ELL)
    factors = [c.Matern52(1, ls=ELL[i])(A[:, [i]]).eval() for i in range(3)]
    assert_allclose(product(A).eval(), np.prod(factors, axis=0), rtol=1e-10)
    assert not np.allclose(product(A).eval(), c.Matern52(3, ls=ELL)(A).eval(), rtol=1e-3)


def test_product_of_one_dimension_is_the_kernel_itself():
    assert isinstance(sgp.cov.Product(c.Matern52, 3, active_dims=[1], ls=0.5), c.Matern52)


@pytest.mark.parametrize(
    ("kind", "shared", "split"),
    [
        (c.Gibbs, {"lengthscale_func": lambda x, a, b: a + b * x**2, "args": (1.0, 0.1)}, {}),
        (c.Matern52, {"ls": None}, {"ls_inv": 1.0 / ELL}),
    ],
)
def test_product_shares_functions_and_what_is_left_out(kind, shared, split):
    product = sgp.cov.Product(kind, 3, **shared, **split)
    factors = [
        kind(1, **shared, **{name: value[i] for name, value in split.items()})(A[:, [i]]).eval()
        for i in range(3)
    ]
    assert_allclose(product(A).eval(), np.prod(factors, axis=0), rtol=1e-10)


@pytest.mark.parametrize("ls", [np.ones(2), np.ones((3, 1))])
def test_product_refuses_vectors_of_another_length(ls):
    with pytest.raises(ValueError, match=r"ls of shape .* does not match 3 active dimensions"):
        sgp.cov.Product(c.Matern52, 3, ls=ls)


@pytest.mark.parametrize(
    ("kernel", "match"),
    [
        (lambda: c.Matern52(2, ls=1.0), r"Matern52 on 2 dimensions is not a product of 1-D kernels"),
        (lambda: c.Matern32(3, ls=1.0, active_dims=[0, 2]), r"sgp\.cov\.Product\(pm\.gp\.cov\.Matern32, 3"),
        (
            lambda: c.RatQuad(2, alpha=1.0, ls=1.0),
            "RatQuad on 2 dimensions .* or ExpQuad, or .*CholQRMarginal.*SoftKIMarginal",
        ),
        (lambda: c.Linear(2, c=0.0), "Linear on 2 dimensions"),
        (lambda: c.Exponential(2, ls=1.0), "Exponential on 2 dimensions"),
        (lambda: c.ExpQuad(2, ls=1.0) + c.Matern52(2, ls=1.0), "Matern52 on 2 dimensions"),
        (lambda: c.Matern52(2, ls=1.0) ** 2, "Matern52 on 2 dimensions"),
        (
            lambda: (c.Matern52(2, ls=1.0) + 1.0) ** 3,
            "Add on 2 dimensions .* needs. Use a class that takes any kernel",
        ),
        (
            lambda: type("Mine", (c.Matern52,), {})(2, ls=1.0),
            "Mine on 2 dimensions .* needs. Use a class that takes any kernel",
        ),
        (lambda: c.ExpQuad(2, ls=1.0) + c.WhiteNoise(0.1), "WhiteNoise .* give it as sigma="),
        (lambda: c.WhiteNoise(0.1), "WhiteNoise .* give it as sigma="),
        (
            lambda: c.ExpQuad(1, ls=1.0) * np.ones((4, 4)),
            r"scaled by an array of shape \(4, 4\): only scalars",
        ),
    ],
)
def test_refused_kernels(kernel, match):
    assert sgp.GriefGP  # imports all classes, which errors name
    with pytest.raises(ValueError, match=match):
        product_terms(kernel())


def test_a_sum_of_products_raised_to_a_power_is_refused():
    """(k1 + k2)^p is neither a product nor, for a general p, a sum of products."""
    kernel = (c.ExpQuad(2, ls=1.0, active_dims=[0]) + c.ExpQuad(2, ls=1.0, active_dims=[1])) ** 1.5
    with pytest.raises((ValueError, NotImplementedError)):
        product_terms(kernel)


def test_a_scale_of_one_entry_is_a_scalar():
    (term,) = product_terms(c.ExpQuad(2, ls=1.0) * np.array([0.3]))
    assert term.scale.ndim == 0
    assert term.scale.eval() == 0.3


def test_random_scale_in_a_model():
    with pm.Model():
        eta = pm.HalfNormal("eta")
        (term,) = product_terms(eta**2 * c.ExpQuad(2, ls=1.0))
    assert eta in pytensor.graph.traversal.ancestors([term.scale])
