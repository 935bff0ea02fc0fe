"""Marks that several files of tests use."""

import pytest


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
