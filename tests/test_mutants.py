"""The machinery of `make mutants`, without a run of it."""

import ast
from pathlib import Path

import mutants
import pytest
from mutation.cover import watchers
from mutation.rules import faults

BY_RULE = mutants.by_rule()


@pytest.mark.parametrize("entry", mutants.BY_HAND, ids=lambda entry: f"{entry.file}: {entry.old}")
def test_the_line_that_a_mutant_changes_is_there_once(entry):
    source = (mutants.ROOT / mutants.PACKAGE / entry.file).read_text(encoding="utf-8")
    assert source.count(entry.old) == 1
    compile(source.replace(entry.old, entry.new), entry.file, "exec")
    assert (mutants.ROOT / "tests" / entry.tests.split()[0]).exists()


def test_a_sample_by_rule_is_of_programs_that_differ():
    chosen = mutants.sample(BY_RULE, 100, seed=1)
    assert len(set(chosen)) == 100
    for mutant in chosen:
        source = (mutants.ROOT / mutants.PACKAGE / mutant.fault.file).read_bytes()
        changed = ast.parse(mutants.mutated(mutant))
        assert ast.dump(changed) != ast.dump(ast.parse(source)), mutants.describe(mutant)
    assert chosen == mutants.sample(BY_RULE, 100, seed=1) != mutants.sample(BY_RULE, 100, seed=2)
    assert len({mutant.fault.file for mutant in chosen}) > 60
    # Few places hold a seed (24 of 8700 faults): samples are taken together to meet each rule.
    several = chosen + [m for seed in range(2, 6) for m in mutants.sample(BY_RULE, 100, seed)]
    assert {m.fault.rule for m in several} == {m.fault.rule for m in BY_RULE}
    assert len({m.fault.rule for m in BY_RULE}) == 8


def test_every_file_has_tests():
    for file in {mutant.fault.file for mutant in BY_RULE}:
        found = watchers(file)
        assert found, file
        assert all((mutants.ROOT / "tests" / test).is_file() for test in found)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a < b", ["a >= b"]),
        ("len(a) < b", ["len(a) <= b"]),
        ("x.ndim == 2", ["x.ndim != 2", "x.ndim == 3"]),
        ("a is not None", ["a is None"]),
        ("a in b", ["a not in b"]),
        ("a and b or c", ["a and b and c", "a or b or c"]),
        ("not (a)", [" (a)"]),
        ("a + b * c", ["a - b * c", "a + b / c"]),
        ("a += 'text' + b", ["a -= 'text' + b"]),
        ("x = -y", ["x = y"]),
        ("np.minimum(a, 0.5)", ["np.maximum(a, 0.5)", "np.minimum(a, 1.0)"]),
        ("map(max, rows)", ["map(min, rows)"]),
        ("JITTER = 1e-10", ["JITTER = 1e-06"]),
        ("np.random.default_rng(seed)", ["np.random.default_rng(0)"]),
        ("np.random.default_rng(0)", ["np.random.default_rng(1)", "np.random.default_rng(None)"]),
        ("def f(n=5, *, a=True): pass", ["def f(n=6, *, a=True): pass", "def f(n=5, *, a=False): pass"]),
        ("if bad: raise ValueError(f'{bad + 1}')", ["if False: raise ValueError(f'{bad + 1}')"]),
        ("if odd: warn('text')", ["if False: warn('text')"]),
        ("sort(x, reverse=True)", ["sort(x, reverse=False)"]),
        ("_BLOCK = 256", []),
        ("f(x, progressbar=True)", []),
        ("def __repr__(self): return self.n + 1", []),
        ("@register_numba(Op)\ndef form(op): return op + 1", []),
        ("'a docstring, 1 < 2'", []),
    ],
)  # fmt: skip
def test_rules(line, expected):
    source = line.encode()
    found = [source[: f.start] + f.new + source[f.end :] for f in faults("a.py", source)]
    assert sorted(text.decode() for text in found) == sorted(expected)


def test_what_is_left_out_has_a_reason():
    assert not faults("ops/_numba.py", b"a < b")
    assert Path(mutants.__file__).parent == mutants.ROOT / "tests"
