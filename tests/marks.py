"""Marks that several files of tests use."""

import pytest

from pymc_scalable_gp.ops._by_ops import BY_OPS

# Back-ends of `check_op`: a whole graph takes Numba as long to compile as all else in an Op's test.
in_back_ends = pytest.mark.parametrize(
    "modes", [(BY_OPS,), pytest.param(("NUMBA",), marks=pytest.mark.slow)], ids=["ops", "NUMBA"]
)


def often(cases, *kept):
    """Cases for ``pytest.mark.parametrize``: those not `kept` are slow, and left to ``make test-slow``."""
    cases = list(cases)
    unknown = [case for case in kept if case not in cases]
    if unknown:
        raise ValueError(f"no such cases: {unknown}")
    return [
        case
        if case in kept
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]
