"""Kernel matrices without lost digits, against PyMC's own and against what an offset must not change."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pymc.gp import cov as c

import pymc_scalable_gp as sgp
from pymc_scalable_gp.cov.kernels import from_square_distance, kernel_diag, kernel_matrix
from pymc_scalable_gp.cov.queries import is_stationary
from pymc_scalable_gp.methods.kmcg.kernel_operator import kernel_operator
from pymc_scalable_gp.methods.kmcg.regular_grid import DENSE_AXIS
from pymc_scalable_gp.ops.square_distances import SquareDistances
from pymc_scalable_gp.utils.compiled import FEW_CALLS

RNG = np.random.default_rng(0)
A, B = (np.round(RNG.uniform(0.1, 2.0, (n, 3)) * 1024) / 1024 for n in (6, 4))
ELL = np.array([0.5, 1.1, 2.0])
OFFSETS = [2020.0, 5.0e6, 1.6e9]


class Wave(c.Stationary):
    """A user's stationary kernel."""

    def full_from_distance(self, dist, squared=False):
        r2 = dist if squared else dist**2
        return pt.exp(-r2) * pt.cos(pt.sqrt(r2 + 1.0))


STATIONARY = {
    "ExpQuad": lambda: c.ExpQuad(3, ls=ELL),
    "one lengthscale": lambda: c.ExpQuad(3, ls=0.7),
    "inverse lengthscales": lambda: c.Matern52(3, ls_inv=1.0 / ELL),
    "some columns": lambda: c.Matern32(3, ls=ELL[:2], active_dims=[2, 0]),
    "lengthscale of shape (1,)": lambda: c.Matern12(3, ls=np.array([0.4]), active_dims=[1]),
    "Exponential": lambda: c.Exponential(3, ls=ELL),
    "RatQuad": lambda: c.RatQuad(3, alpha=0.7, ls=ELL),
    "Cosine": lambda: c.Cosine(3, ls=0.8, active_dims=[1]),
    "Periodic": lambda: c.Periodic(3, period=np.array([1.0, 2.0, 0.5]), ls=ELL),
    "Periodic, shared": lambda: c.Periodic(3, period=1.5, ls=0.8),
    "WrappedPeriodic": lambda: c.WrappedPeriodic(c.Matern52(3, ls=ELL), period=1.5),
    "user's": lambda: Wave(3, ls=ELL),
    "sum and product": lambda: (
        2.0 * c.ExpQuad(3, ls=ELL) * c.Cosine(3, ls=2.0, active_dims=[0]) + 0.5
        + 0.3 * c.Matern32(3, ls=0.4, active_dims=[1])
    ),
    "power": lambda: (c.Matern52(3, ls=ELL) + c.Constant(0.2)) ** 2,
}  # fmt: skip
OTHER = {
    "Linear": lambda: c.Linear(3, c=0.3),
    "Polynomial": lambda: c.Polynomial(3, c=0.3, d=2, offset=0.5),
    "warped": lambda: c.WarpedInput(3, c.Matern52(3, ls=ELL), lambda x: pt.tanh(x)),
    "warped with arguments": lambda: c.WarpedInput(
        3, c.ExpQuad(1, ls=0.4), lambda x, a: a * x**2, args=2.0, active_dims=[1]
    ),
    "scaled": lambda: c.ScaledCov(3, c.ExpQuad(3, ls=ELL), lambda x: 1.0 + x[:, 0] ** 2),
    "Gibbs": lambda: c.Gibbs(3, lambda x: 0.5 + x**2, active_dims=[2]),
    "Circular": lambda: c.Circular(3, period=2.0, active_dims=[0]),
    "Coregion": lambda: c.Coregion(3, W=np.ones((2, 1)), kappa=np.ones(2), active_dims=[1]),
    "scaled by an array": lambda: c.ExpQuad(3, ls=ELL) * np.arange(24.0).reshape(6, 4),
    "Hamming": lambda: sgp.cov.Hamming(3, 1.3, active_dims=[0]) * c.ExpQuad(3, ls=ELL),
}


def values(*tensors):
    return pytensor.function([], list(tensors), mode=FEW_CALLS)()


@pytest.mark.parametrize("name", [*STATIONARY, *OTHER])
def test_values_are_those_of_pymc(name, monkeypatch):
    # PyMC adds 1e-12 below the root; these kernels are the exact ones.
    monkeypatch.setattr(c.Stationary, "_sqrt", lambda self, r2: pt.sqrt(r2))
    kernel = (STATIONARY | OTHER)[name]()
    found, expected = values(kernel_matrix(kernel, A, B), kernel(A, B))
    assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("name", [name for name in STATIONARY])
def test_an_offset_changes_nothing(name, offset):
    kernel = STATIONARY[name]()
    a, b = A + offset, B + offset
    graphs = [kernel_matrix(kernel, *pair) for pair in ((A, B), (a, b), (A,), (a,))]
    here, there, own, moved = values(*graphs)
    assert_allclose(there, here, rtol=1e-13)
    assert_allclose(moved, own, rtol=1e-13)


@pytest.mark.parametrize("name", STATIONARY)
def test_symmetric_with_the_exact_variance_on_the_diagonal(name):
    kernel = STATIONARY[name]()
    X = np.concatenate([A, A[:2]]) + 0.1
    K, diag = values(kernel_matrix(kernel, X), kernel_diag(kernel, X))
    assert_array_equal(K, K.T)
    if name != "user's":  # which is cos(1) at distance 0
        assert_array_equal(np.diag(K), diag)
    assert_array_equal(K[6], K[0])


@pytest.mark.parametrize("kernel", [c.Matern12, c.Matern32, c.Matern52, c.Exponential, c.Cosine, c.ExpQuad])
@pytest.mark.parametrize("ard", [False, True])
def test_gradients_also_between_equal_points(kernel, ard):
    """In X, Z and the lengthscales, by differences; between equal points the slope is 0, not NaN."""
    X, Z = pt.dmatrix("X"), pt.dmatrix("Z")
    ls = pt.dvector("ls") if ard else pt.dscalar("ls")
    weights = RNG.standard_normal((6, 5))
    loss = (kernel_matrix(kernel(3, ls=ls), X, Z) * weights).sum()
    function = pytensor.function([X, Z, ls], [loss, *pt.grad(loss, [X, Z, ls])], mode=FEW_CALLS)
    point = [A, np.concatenate([B, A[:1]]), ELL if ard else np.array(0.7)]
    _, *grads = function(*point)
    assert all(np.isfinite(g).all() for g in grads)
    for k in range(3):
        step = RNG.standard_normal(np.shape(point[k]))
        if k < 2:
            step[0 if k == 0 else 4] = 0.0  # the pair stays equal: some kernels have a kink there
        sides = [
            function(*[p + s * 1e-6 * step if i == k else p for i, p in enumerate(point)])[0]
            for s in (1, -1)
        ]
        slope = (sides[0] - sides[1]) / 2e-6
        assert_allclose(slope, (grads[k] * step).sum(), rtol=1e-6, atol=1e-8)


def test_a_shape_of_one_entry_that_its_type_does_not_tell():
    """As of a variable with ``dims``."""
    alpha = pt.dvector("alpha")
    found = kernel_matrix(c.RatQuad(3, ls=ELL, alpha=alpha), A, B).eval({alpha: [0.7]}, mode=FEW_CALLS)
    assert_allclose(found, *values(kernel_matrix(c.RatQuad(3, ls=ELL, alpha=0.7), A, B)), rtol=1e-14)


def test_all_points_equal_give_no_slope():
    X = pt.dmatrix("X")
    slope = pt.grad(kernel_matrix(c.Matern12(2, ls=0.5), X).sum(), X)
    assert_array_equal(slope.eval({X: np.ones((4, 2))}, mode=FEW_CALLS), 0.0)


def test_nan_stays_nan():
    squared = pt.dvector("squared")
    out = from_square_distance(c.Matern32(1, ls=1.0), squared).eval(
        {squared: np.array([0.0, np.nan, np.inf])}, mode=FEW_CALLS
    )
    assert out[0] == 1.0
    assert np.isnan(out[1:]).all()  # inf * exp(-inf)


def test_a_kernel_with_a_form_of_its_own_is_called_as_it_is():
    class Own(c.ExpQuad):
        def full(self, X, Xs=None):
            return 7.0 * super().full(X, Xs)

    class Wider(c.ExpQuad):
        def square_dist(self, X, Xs):
            return 4.0 * super().square_dist(X, Xs)

    for kernel in (Own(3, ls=ELL), Wider(3, ls=ELL)):
        found, expected = values(kernel_matrix(kernel, A, B), kernel(A, B))
        assert_allclose(found, expected, rtol=1e-13)


def test_a_subclass_with_a_form_of_its_own_need_not_be_stationary():
    """Its first column was taken for all of them on an even axis."""

    class Log(c.Matern52):
        def full(self, X, Xs=None):
            return super().full(pt.log(X), None if Xs is None else pt.log(Xs))

    class Metric(c.ExpQuad):
        def square_dist(self, X, Xs):
            return super().square_dist(pt.log(X), None if Xs is None else pt.log(Xs))

    assert is_stationary(Wave(1, ls=0.5))
    grid = sgp.RegularGrid([np.linspace(1.0, 2.0, DENSE_AXIS + 1)])
    for kernel in (Log(1, ls=0.5), Metric(1, ls=0.5)):
        assert not is_stationary(kernel)
        K = kernel_operator(kernel, grid, grid).to_dense()
        assert_allclose(*values(K, kernel(grid.points)), rtol=1e-12)


def test_static_shapes_may_be_known_of_one_set_only():
    """Columns are taken from each set by its own shape: X is cut to one column, Z has three."""
    Z = pt.dmatrix("Z")
    kernel = c.ExpQuad(1, ls=0.5)
    found = [kernel_matrix(kernel, A, Z), kernel_matrix(kernel, Z, A).T]
    found = pytensor.function([Z], found, mode=FEW_CALLS)(B)
    for value in found:
        assert_allclose(value, np.exp(-2.0 * (A[:, :1] - B[:, 0]) ** 2), rtol=1e-13)


def test_equal_columns_share_their_distances():
    """With one lengthscale for many inputs: their gradient is elementwise then."""
    kernel = c.ExpQuad(9, ls=0.5) + c.Matern32(9, ls=2.0) * c.RatQuad(9, ls=1.0, alpha=1.0)
    wide = (pytensor.shared(np.hstack([points] * 3)) for points in (A, B))
    shared = kernel_matrix(kernel, *wide)
    function = pytensor.function([], shared, mode="FAST_RUN")
    ops = [node.op for node in function.maker.fgraph.apply_nodes]
    assert sum(isinstance(op, SquareDistances) for op in ops) == 1


def test_random_parameters():
    with pm.Model():
        ell, eta = pm.HalfNormal("ell", shape=3), pm.HalfNormal("eta")
        K = kernel_matrix(eta**2 * c.Matern52(3, ls=ell), A)
    assert {ell, eta} <= set(pytensor.graph.traversal.ancestors([K]))


def test_fewer_columns_than_inputs_is_said_elsewhere():
    """PyMC warns at each call, here at none: `warn_unused_columns` does so once, at the user's line."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kernel in (c.ExpQuad(1, ls=1.0) + 1.0, c.Linear(1, c=0.0)):
            K, diag = values(kernel_matrix(kernel, A, B), kernel_diag(kernel, A))
            assert K.shape == (6, 4)
            assert diag.shape == (6,)
