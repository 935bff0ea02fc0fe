import runpy
from pathlib import Path

MAP = runpy.run_path(str(Path(__file__).with_name("code_map.py")))


def test_the_map_in_contributing_is_that_of_the_tree():
    assert MAP["split"]()[1] == MAP["code_map"](), "run `make map`"


def test_every_room_is_on_the_map():
    rooms = {p.parent.name for p in MAP["PACKAGE"].glob("*/__init__.py")}
    assert rooms == set(MAP["ROOMS"])


def test_no_file_is_long():
    long = {
        str(path.relative_to(MAP["PACKAGE"])): count
        for path in MAP["PACKAGE"].rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) >= 400
    }
    assert not long
