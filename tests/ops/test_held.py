"""Matrices that gradients hold fixed."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops.held import Held, held

AT = np.array([[3.0, -1.0]])


def test_it_is_the_matrix_and_has_no_gradient():
    x = pt.matrix("x", dtype="float64")
    outputs = [held(x), pytensor.grad((x * held(x)).sum(), x)]
    for mode in ("FAST_COMPILE", "NUMBA"):
        value, slope = pytensor.function([x], outputs, mode=mode)(AT)
        assert_allclose(value, AT)
        assert_allclose(slope, AT)


def test_it_outlives_the_rewriting_of_parameters():
    with pm.Model() as model:
        a = pm.Flat("a")
        pm.Normal("y", (a * held(a * pt.ones((1, 1)))).sum(), 1.0, observed=0.0)
        gradient = model.compile_dlogp(mode="FAST_COMPILE")({"a": np.array(3.0)})
    assert_allclose(gradient, -9.0 * 3.0)


def test_jax_differentiates_it_neither():
    jax = pytest.importorskip("jax")
    from pytensor.link.jax.dispatch import jax_funcify

    x = pt.matrix("x", dtype="float64")
    node = held(x).owner
    function = jax_funcify(Held(), node=node)
    with jax.enable_x64(True):
        slope = jax.grad(lambda x: (x * function(x)).sum())(AT)
    assert_allclose(slope, AT)
