"""Both routes to the regressions: blocks formed by the kernel's graph, and those an Op makes as it goes."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.features.residual import fused_kernel, regressions
from pymc_scalable_gp.core.vecchia.neighbors import Metric, order_rows

rng = np.random.default_rng(0)
X = rng.uniform(-1.0, 1.0, (23, 3)) + np.array([2e3, 0.0, -5.0])
PHI, NOISE = 0.1 * rng.standard_normal((23, 2)), rng.uniform(0.1, 0.3, 23)
KERNELS = {
    "ExpQuad": {}, "Matern12": {}, "Exponential": {}, "Matern32": {}, "Matern52": {},
    "RatQuad": {"alpha": 1.7},
}  # fmt: skip


def values_and_gradient(cov, variables, found_of):
    """A, L and the slopes of a random contraction of both."""
    weights = np.random.default_rng(1)
    A, L, _ = found_of(cov)
    total = (A * weights.standard_normal(A.type.shape)).sum()
    total += (L * weights.standard_normal(L.type.shape)).sum()
    outputs = [A, L, *pt.grad(total, variables)]
    return pytensor.function(variables, outputs)(*VALUES[: len(variables)])


VALUES = [np.array([0.8, 1.3]), 1.6]


@pytest.mark.parametrize("name", KERNELS)
def test_both_routes_agree(name, monkeypatch):
    ell, scale = pt.vector("ell", shape=(2,)), pt.scalar("scale")
    base = getattr(pm.gp.cov, name)(3, ls=ell, active_dims=[0, 2], **KERNELS[name])
    plan = order_rows(X, Metric(pm.gp.cov.ExpQuad(3, ls=1.0), X), 4, 7)
    near = pt.constant(plan.neighbors)

    def found_of(cov):
        found = regressions(cov, pt.constant(X[plan.order]), PHI, NOISE, near, 4)
        names.append({type(v.owner.op).__name__ for v in found[:2]})
        return found

    names = []
    fused = values_and_gradient(scale * base, [ell, scale], found_of)
    monkeypatch.setattr("pymc_scalable_gp.core.features.residual.fused_kernel", lambda *_: None)
    general = values_and_gradient(scale * base, [ell, scale], found_of)
    assert names == [{"StationaryFactor"}, {"VecchiaFactor"}]
    for a, b in zip(fused, general, strict=True):  # the offset costs the graph's distances no digits
        assert_allclose(a, b, rtol=0.0, atol=1e-12 * max(np.abs(b).max(), 1.0))


def test_an_offset_costs_points_on_circles_no_digits():
    far = X[:, 1:2] + 2.0**30
    periodic = pm.gp.cov.Periodic(1, period=0.7, ls=0.5)
    near, found = (fused_kernel(periodic, pt.constant(rows)).X.eval() for rows in (far - 2.0**30, far))
    assert_allclose(found, near, atol=1e-15)


C = pm.gp.cov
SUMS = {
    "shared and own inputs": lambda ls, eta: (
        eta**2 * C.Matern52(3, ls=ls, active_dims=[0, 2]) * C.RatQuad(3, ls=0.7, alpha=eta, active_dims=[1])
        + 0.5 * (C.ExpQuad(3, ls=ls[0]) + eta * C.Matern12(3, ls=ls[1], active_dims=[1]))
    ),
    "seasons": lambda ls, eta: (
        C.Matern32(3, ls=ls, active_dims=[1, 2]) * C.Periodic(3, period=0.9, ls=eta, active_dims=[0])
        + eta * C.WrappedPeriodic(C.RatQuad(3, ls=ls, alpha=1.3, active_dims=[0, 1]), period=ls)
    ),
    "the globe in time": lambda ls, eta: (
        eta * sgp.cov.GreatCircle(C.Matern12, ls=2e3 * ls[0], input_dim=3, active_dims=[1, 2])
        * C.Matern52(3, ls=ls[1], active_dims=[0])
    ),
    "curves of their own scales": lambda ls, eta: (
        C.Matern52(3, ls=eta, active_dims=[0])
        * sgp.cov.PerGroup(C.Matern32, 3, ls=0.7, scale=ls, group_dim=2)
        + eta * sgp.cov.PerGroup(C.ExpQuad, 3, ls=ls, scale=1.0 / ls, group_dim=2)
    ),
    "curves around a common one": lambda ls, eta: (
        C.Matern52(3, ls=ls[0], active_dims=[0])
        + sgp.cov.PerGroup(C.Matern32, 3, ls=ls, scale=eta, group_dim=2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_both_routes_agree_for_sums_of_products(name, monkeypatch):
    """Of kernels on columns of X and on other inputs; a period and scaled rows have gradients too."""
    ls, eta = pt.vector("ls", shape=(2,)), pt.scalar("eta")
    rows = np.column_stack([X[:, :2], np.arange(23) % 2])
    plan = order_rows(rows, Metric(C.ExpQuad(3, ls=1.0), rows), 4, 7)
    cov, ops = SUMS[name](ls, eta), []

    def found_of(cov):
        found = regressions(cov, pt.constant(rows[plan.order]), PHI, NOISE, plan.neighbors, 4)
        ops.append(found.A.owner.op)
        return found

    fused = values_and_gradient(cov, [ls, eta], found_of)
    monkeypatch.setattr("pymc_scalable_gp.core.features.residual.fused_kernel", lambda *_: None)
    general = values_and_gradient(cov, [ls, eta], found_of)
    moving = name == "seasons" or "curves" in name
    assert [type(op).__name__ for op in ops] == ["StationaryFactor", "VecchiaFactor"]
    assert ops[0].moving == moving
    for a, b in zip(fused, general, strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-11 * max(np.abs(b).max(), 1.0))


@pytest.mark.parametrize(
    "cov",
    [
        C.Matern52(3, ls=1.0) + C.Linear(3, c=0.0),
        C.Matern52(3, ls=1.0) * C.Cosine(3, ls=1.0),
        C.Matern52(3, ls=1.0) + 0.5,
        C.WrappedPeriodic(C.Periodic(3, period=1.0, ls=1.0), period=2.0),
        C.Matern52(3, ls=1.0) + sgp.cov.PerGroup(C.RatQuad, 3, ls=1.0, alpha=1.0, group_dim=2),
    ],
)  # fmt: skip
def test_other_kernels_take_the_general_route(cov):
    assert fused_kernel(cov, pt.constant(np.column_stack([X[:, :2], np.arange(23) % 2]))) is None


def test_inputs_with_a_prior_take_the_route_with_their_gradient():
    cov = pm.gp.cov.ExpQuad(3, ls=1.0)
    with pm.Model():
        inputs = X + pm.Normal("shift", shape=X.shape)
    near = pt.constant(np.full((6, 0), -1))
    found = regressions(cov, inputs, PHI, NOISE, near, 4)
    assert type(found.L.owner.op).__name__ == "StationaryFactor"
    assert found.L.owner.op.moving


def test_both_routes_agree_for_groups(monkeypatch):
    """Rows scaled by parameters, with factors of their own: inputs that move; the last block is short."""
    ls, scale = pt.vector("ls", shape=(2,)), pt.vector("scale", shape=(2,))
    cov = sgp.cov.PerGroup(pm.gp.cov.Matern52, 3, ls=ls, scale=scale, group_dim=1)
    rows = np.column_stack([X[:, 0], np.arange(23) % 2, X[:, 2]])
    plan = order_rows(rows, Metric(pm.gp.cov.ExpQuad(3, ls=1.0), rows), 4, 7)
    weights = [rng.standard_normal((6, 4, 7)), np.tril(rng.standard_normal((6, 4, 4)))]

    def found():
        made = regressions(cov, pt.constant(rows[plan.order]), PHI, NOISE, plan.neighbors, 4)
        total = sum((a * w).sum() for a, w in zip(made[:2], weights, strict=True))
        total = total + made.half_logdet()
        outputs = [*made[:2], total, *pt.grad(total, [ls, scale])]
        return pytensor.function([ls, scale], outputs)(np.array([0.8, 1.3]), np.array([1.6, 0.9]))

    fused = found()
    monkeypatch.setattr("pymc_scalable_gp.core.features.residual.fused_kernel", lambda *_: None)
    for a, b in zip(fused, found(), strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-11)
