"""The pages name what the package has."""

import ast
import re
import runpy
import tomllib
from pathlib import Path

import pytest

import pymc_scalable_gp as sgp
from pymc_scalable_gp import testing

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "_build" not in page.parts and "```" in page.read_text(encoding="utf-8")
]
CLASSES = [each for name in sgp.__all__ if isinstance(each := getattr(sgp, name), type)]


def test_the_reference_lists_every_public_name():
    text = (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   ([\w.]+)$", text, re.M)
    rooms = {"cov": sgp.cov, "ops": sgp.ops, "linops": sgp.linops, "testing": testing}
    wanted = set(sgp.__all__) - set(rooms)
    for name, room in rooms.items():
        wanted |= {f"{name}.{each}" for each in room.__all__}
    assert sorted(listed) == sorted(wanted)


def test_installation_lists_the_extras():
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    row = re.search(r"\| `test` \| ([^|]*) \|", text)[1].split(", ")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [name.strip() for name in row] == extras["optional-dependencies"]["test"]


def test_files_that_the_pages_name_exist():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        named = re.findall(r"\b(?:tests|examples)/[\w/]+\.py", page.read_text(encoding="utf-8"))
        missing = [name for name in named if "<" not in name and not (ROOT / name).exists()]
        assert not missing, f"{page.name} names {missing}"


HEADING = ["# command", "# date", "# machine", "# versions"]


def test_recorded_results_are_complete_and_shown():
    """Each says where it is from, is on a page, and its command is the one that makes it again."""
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    shown = re.findall(r"^```\{recorded\} (\w+)$", pages, re.M)
    kept = sorted((ROOT / "docs" / "benchmarks").glob("*.txt"))
    commands = runpy.run_path(str(ROOT / "tests" / "benchmarks" / "record.py"))["RUNS"]
    assert sorted(shown) == sorted(commands) == [path.stem for path in kept]
    for path in kept:
        head, printed = path.read_text(encoding="utf-8").split("\n\n", 1)
        lines = head.splitlines()
        assert [line.split(":")[0] for line in lines] == HEADING
        assert lines[0] == f"# command: python {commands[path.stem]}"
        assert printed.strip()


def python_blocks(page):
    """Fenced Python code of a page, the cells of tutorials too."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"```(?:python|\{code-cell\} python)\n(.*?)```", text, re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_of_the_pages_names_what_there_is(page):
    """Each block is Python, and what it takes from the package or asks of a GP exists."""
    methods = {name for cls in CLASSES for name in dir(cls)}
    for block in python_blocks(page):
        block = re.sub(r"^:\w+:.*$", "", block, flags=re.M)  # options of a cell
        for node in ast.walk(ast.parse(block)):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            if node.value.id == "sgp":
                assert hasattr(sgp, node.attr), f"sgp.{node.attr}"
            elif node.value.id == "gp":
                assert node.attr in methods, f"gp.{node.attr}"


FIRST_FIT = [
    'gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)',
    "idata = sgp.sample_importance(",
    "print(gp.check(idata))",
    "prediction = gp.predict_posterior(Xnew, idata",
]


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md", "examples/quickstart.py"])
def test_a_first_fit_is_the_same_few_lines(name):
    """What larger data need is explained once, in docs/scale.md."""
    text = (ROOT / name).read_text(encoding="utf-8")
    places = [text.find(line) for line in FIRST_FIT]
    assert places[0] > -1
    assert places == sorted(places)
    for later in ("subset_map", "gp.build(", "initvals", "n_inducing", "neighbors="):
        assert later not in text, f"{later} in {name}"


def test_no_page_has_marks_of_a_merge():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        assert not re.search(r"^(<{7}|={7}$|>{7})", page.read_text(encoding="utf-8"), re.M), page


def test_first_pages_are_short():
    words = re.findall(r"\S*\w\S*", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(words) <= 600
    script = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    assert len(script.splitlines()) <= 80


def test_every_picture_has_a_text():
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for picture in re.findall(r"```\{image\}.*?```|:img-top:.*?\n:::", text, re.S):
            assert re.search(r":(img-)?alt: \S", picture), f"{page.name}: {picture[:60]}"
