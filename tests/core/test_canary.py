"""What the compiled density and gradient of each likelihood path compute: a canary for its cost.

Counted are Ops that cost the cube of the rank, and arrays that are as long as the training set. A
summarised likelihood has none of the latter, whatever the parameters. Data are shared variables, so
that what follows from them alone (residuals, reordered rows) counts too: it is O(n), and keeps equal
models of other data on the same compiled code. A count that falls is an improvement, to be written down
here.
"""

from collections import Counter

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.link.basic import PerformLinker
from pytensor.link.numba.linker import NumbaLinker

import pymc_scalable_gp as sgp

N = 53  # no other length here
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (N, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(N)
TASK = np.column_stack([X, np.arange(N) % 3])
CUBIC = (
    "Cholesky", "Eigh", "InverseCholesky", "LU", "LowRankLogp",
    "LowRankLogpGrad", "LowRankPosterior", "MatrixInverse", "QR", "SVD", "Solve",
    "SolveTriangular", "StackedCholesky", "StackedSolve",
)  # fmt: skip


def kernel():
    return 2.0 * pm.gp.cov.ExpQuad(2, ls=pm.InverseGamma("ell", 3, 3))


def full():
    return sgp.GriefGP(cov_func=kernel(), grid=5, rank=12), X


def summarized():
    return sgp.SoftKIMarginal(cov_func=kernel(), inducing=X[:9]), X


def rotated():
    cov = 2.0 * pm.gp.cov.ExpQuad(2, ls=0.7)
    return sgp.GriefGP(cov_func=cov, grid=5, rank=12, rotate=True), X


def coordinates():
    return sgp.KMCGMarginal(cov_func=kernel(), n_iter=7, probes=0), X


def products():
    gp = sgp.SKIPMarginal(cov_func=kernel(), grid_size=30, rank=6, n_iter=7, probes=2, preconditioner=5)
    return gp, X


def tasks():
    cov = 2.0 * pm.gp.cov.ExpQuad(3, ls=pm.InverseGamma("ell", 3, 3), active_dims=[0, 1])
    B = pm.Normal("B", shape=(3, 2))
    return sgp.SKIPMarginal(cov_func=cov, grid_size=30, rank=6, task_dim=2, task_cov=B), TASK


def computed(make):
    """Path, Ops that cost a cube, and the number of Ops that compute n rows or columns."""
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        gp, rows = make()
        y = gp.marginal_likelihood("y", X=rows, y=Y, sigma=sigma)
    inputs, value = model.value_vars, model.logp(vars=[y])
    grads = pt.grad(value, inputs, disconnected_inputs="ignore")
    mode = Mode(PerformLinker(allow_gc=False), "fast_run")  # every array stays where it was put
    function = pytensor.function(inputs, [value, *grads], mode=mode)
    point = model.initial_point(0)
    assert all(np.isfinite(v).all() for v in function(*(point[v.name] for v in inputs)))
    cubic, long = Counter(), 0
    for node in function.maker.fgraph.apply_nodes:
        name = type(getattr(node.op, "core_op", node.op)).__name__
        cubic[name] += name in CUBIC
        arrays = [function.vm.storage_map[out][0] for out in node.outputs]
        # A view, such as a transpose, costs nothing.
        long += not node.op.view_map and any(N in np.shape(array) for array in arrays)
    return gp.likelihood_path, {name: count for name, count in cubic.items() if count}, long


EXPECTED = {
    full: ("full", {"InverseCholesky": 1, "LowRankLogp": 1, "LowRankLogpGrad": 1}, 13),
    summarized: (
        "summarized",
        {"StackedCholesky": 1, "LowRankLogp": 1, "LowRankLogpGrad": 1, "StackedSolve": 2}, 0,
    ),
    rotated: ("rotated", {}, 0),
    coordinates: (
        "coordinates",
        # The kernel and its slope are Ops, which are not fused with the scale's products.
        {"StackedCholesky": 1, "LowRankLogp": 1, "LowRankLogpGrad": 1, "StackedSolve": 4}, 8,
    ),
    products: (
        "products",
        {"StackedCholesky": 1, "StackedSolve": 4, "InverseCholesky": 2}, 32,
    ),
    tasks: (
        "tasks",
        {"StackedCholesky": 1, "StackedSolve": 6, "InverseCholesky": 3}, 43,
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", EXPECTED, ids=lambda make: make.__name__)
def test_nothing_is_computed_twice_or_over_the_rows(make):
    path, cubic, most = EXPECTED[make]
    found_path, found, long = computed(make)
    assert found_path == path
    assert found == cubic
    assert long <= most


@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
def test_building_a_model_compiles_no_machine_code(monkeypatch):
    """The default back-end takes seconds where it is asked for a number: of sigma, a mean, of dims."""

    def refuse(*_args, **_kwargs):
        raise AssertionError("compiled for numbers that are needed once")

    monkeypatch.setattr(NumbaLinker, "jit_compile", refuse)
    with pytensor.config.change_flags(mode="NUMBA"):
        with pytest.raises(AssertionError, match="compiled"):
            pt.constant(1.0).eval()
        for make in EXPECTED:
            with pm.Model():
                gp, rows = make()
                gp.marginal_likelihood("y", X=rows, y=Y, sigma=0.3)
        with pm.Model(coords={"row": range(N)}):
            cov, sigma = pm.gp.cov.ExpQuad(2, ls=0.7), pm.math.exp(-1.0)
            sgp.GriefGP(cov_func=cov, grid=5, rank=12).prior("f", X, dims="row")
            gp = sgp.SoftKIMarginal(cov_func=cov, inducing=X[:9], temperature=pm.math.exp(0.0))
            gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma, dims="row")
            gp = sgp.GriefGP(cov_func=cov, grid=5, rank=12, approx="DTC")
            gp.build(X)
            gp.marginal_likelihood("z", X=X, y=Y, sigma=sigma, weights=np.ones(gp.rank))
