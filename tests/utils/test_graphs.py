"""What may be computed once, and what may not."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_scalable_gp.utils.graphs import depends_only_on

SHARED = pytensor.shared(np.ones(3), name="shared")
OTHER = pytensor.shared(np.ones(3), name="other")
INPUT = pt.vector("x")
GENERATOR = pytensor.shared(np.random.default_rng(0))
NORMAL = pm.Normal.dist(size=3)


@pytest.mark.parametrize(
    ("outputs", "allowed", "expected"),
    [
        ([], [], True),
        ([pt.constant(2.0) * np.ones(3)], [], True),
        ([SHARED], [], False),
        ([SHARED], [SHARED], True),
        ([2.0 * SHARED], [SHARED], True),
        ([2.0 * SHARED + OTHER], [SHARED], False),
        ([2.0 * SHARED + OTHER], [SHARED, OTHER], True),
        ([SHARED, OTHER], [SHARED], False),
        ([INPUT + 1.0], [], False),
        ([INPUT + 1.0], [INPUT], True),
        ([NORMAL], [], False),
        ([NORMAL + SHARED], [SHARED], False),
        ([pt.exp(NORMAL)[:2] * 0.0], [], False),
        ([pm.Censored.dist(pm.Normal.dist(), -1.0, 1.0)], [], False),
        ([pt.random.normal(size=2, rng=GENERATOR, return_next_rng=True)[1]], [], False),
        ([pt.random.normal(size=2, rng=GENERATOR, return_next_rng=True)[1]], [GENERATOR], False),
    ],
)
def test_depends_only_on(outputs, allowed, expected):
    assert depends_only_on(outputs, allowed) is expected


def test_an_allowed_expression_hides_what_is_behind_it():
    inner = SHARED + INPUT
    assert depends_only_on([2.0 * inner], [inner])
    assert not depends_only_on([2.0 * inner + SHARED], [inner])
    assert depends_only_on([inner], iter([inner]))


def test_data_of_a_model():
    """The defect: a temperature or mean from pm.Data was taken for a constant."""
    with pm.Model():
        data, other = pm.Data("data", np.ones(3)), pm.Data("other", np.ones(3))
        scale = pm.Deterministic("scale", 2.0 * data)
        free = pm.HalfNormal("free")
    assert depends_only_on([scale], [data])
    assert not depends_only_on([scale], [other])
    assert not depends_only_on([scale, other], [data])
    assert not depends_only_on([free * data], [data])
