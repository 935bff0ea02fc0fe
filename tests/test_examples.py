"""Every public name has an example, and the examples print what they say."""

import doctest

import pytest

import pymc_scalable_gp as sgp

ROOMS = {"": sgp, "cov.": sgp.cov, "ops.": sgp.ops, "linops.": sgp.linops}
PUBLIC = {f"{prefix}{name}": getattr(room, name) for prefix, room in ROOMS.items() for name in room.__all__}
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def runs(example):
    return not example.options.get(doctest.SKIP, False)


SLOW = ("InducingSelection",)  # a search, which CholQRMarginal's example compiles too


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in PUBLIC]
)
def test_the_example_prints_what_it_says(name):
    """With nothing imported beforehand, as when it is pasted alone."""
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(optionflags=FLAGS)
    found = finder.find(PUBLIC[name], name, globs={})
    assert any(runs(example) for test in found for example in test.examples), "no example"
    report = []
    for test in found:
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
