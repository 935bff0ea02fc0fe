"""Features of the cells of a grid: leading products of its axes' eigenvectors."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.kmcg import cells


def made(grid, cov_func, rank):
    data = sgp.KMCGMarginal(cov_func=cov_func).inputs_of(grid)
    found = cells.CellMap.of(cov_func, data, rank)
    phi = found.features(data.tensor).eval()
    rows = found.features(pt.constant(grid.points[:50])).eval()
    assert_allclose(rows, phi[:50], rtol=1e-9, atol=1e-10)
    return phi


def held(phi):
    return (phi**2).sum() / len(phi)


def test_of_many_cells_some_choose_the_products():
    """The largest ones, however the cells are ordered; and the same ones each time."""
    axes = [np.linspace(0.0, 3.0, 64), np.linspace(0.0, 3.0, 60)]
    cov_func = sgp.cov.Product(pm.gp.cov.Matern32, 2, ls=0.8)
    phi = made(sgp.RegularGrid(axes), cov_func, 25)
    matrices = [pm.gp.cov.Matern32(1, ls=0.8)(a[:, None]).eval() for a in axes]
    values = np.multiply.outer(*map(np.linalg.eigvalsh, matrices)).ravel()
    best = np.sort(values)[::-1][:25].sum() / values.size
    assert 0.99 * best < held(phi) <= best * (1.0 + 1e-9)
    assert_array_equal(phi, made(sgp.RegularGrid(axes), cov_func, 25))


def test_a_long_axis_has_nodes_among_its_cells(monkeypatch):
    """No matrix of all its cells, and what the kernel is between the nodes."""
    monkeypatch.setattr(cells, "LONG_AXIS", 40)
    times, grids = np.linspace(0.0, 5.0, 61), []
    fit_term = cells.fit_term
    monkeypatch.setattr(cells, "fit_term", lambda *a: grids.append(a[1]) or fit_term(*a))
    phi = made(sgp.RegularGrid([times]), pm.gp.cov.ExpQuad(1, ls=0.5), 20)
    assert [len(u) for u in grids[0]] == [40]
    near = np.exp(-0.5 * ((times[:, None] - times) / 0.5) ** 2)
    assert_allclose(phi @ phi.T, near, atol=1e-4)


@pytest.mark.parametrize("gaps", [False, True])
def test_constants_and_columns_that_a_term_does_not_use(gaps):
    axes = [np.array([0.0, 0.4, 1.0]), np.array([0.0, 1.0, 1.5, 3.0])]
    mask = np.ones((3, 4), bool)
    mask[1, 2] = not gaps
    grid = sgp.RegularGrid(axes, mask)
    cov = pm.gp.cov
    cov_func = (
        cov.Constant(0.5)
        + cov.Matern52(2, ls=0.7, active_dims=[1])
        + sgp.cov.Product(cov.Matern32, 2, ls=0.9)
    )
    phi = made(grid, cov_func, 30)
    assert phi.shape == (grid.n, 1 + 4 + 12)
    assert_allclose(phi @ phi.T, cov_func(grid.points).eval(), atol=1e-6)
