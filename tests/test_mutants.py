import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("mutants", Path(__file__).with_name("mutants.py"))
MUTANTS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS.MUTANTS, ids=MUTANTS.describe)
def test_the_line_that_a_mutant_changes_is_there_once(mutant):
    compile(MUTANTS.mutated(mutant), mutant.file, "exec")
    assert (MUTANTS.ROOT / "tests" / mutant.tests.split()[0]).exists()


def test_there_are_enough_of_them():
    assert len(set(MUTANTS.MUTANTS)) >= 60
    assert {mutant.file.split("/")[0] for mutant in MUTANTS.MUTANTS} >= {"core", "ops", "methods"}
