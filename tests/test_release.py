"""What a release is made of agrees: dependencies, changelog, recipe, workflow."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def rendered():
    """The recipe, as conda-build's Jinja makes it."""
    jinja, yaml = pytest.importorskip("jinja2"), pytest.importorskip("yaml")
    text = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    names = {"environ": {}, "PYTHON": "python", "RECIPE_DIR": "/recipe"}
    return yaml.safe_load(jinja.Template(text).render(**names))


def test_the_recipe_has_the_dependencies_of_the_package():
    run = {each.split()[0]: each for each in rendered()["requirements"]["run"]}
    found = {name.replace("pymc-base", "pymc"): each.split()[1:] for name, each in run.items()}
    wanted = {}
    for each in ["python" + PROJECT["requires-python"], *PROJECT["dependencies"]]:
        name, bounds = re.fullmatch(r"([\w-]+)(.*)", each).groups()
        wanted[name] = [bounds] if bounds else []
    assert found == wanted


def test_the_recipe_is_of_the_last_release_in_the_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", text, re.M)
    assert rendered()["package"]["version"] == released[0]


def test_the_workflow_calls_make_alone():
    yaml = pytest.importorskip("yaml")
    (path,) = (ROOT / ".github" / "workflows").iterdir()
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert steps
    assert all(step.startswith("make ") for step in steps)
    matrix = jobs["make"]["strategy"]["matrix"]
    targets = {*matrix["target"], *(each["target"] for each in matrix["include"])}
    known = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert targets <= set(known)
