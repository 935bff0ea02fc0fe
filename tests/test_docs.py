"""The pages name what the package has."""

import re
import tomllib
from pathlib import Path

import pymc_scalable_gp as sgp

ROOT = Path(__file__).parents[1]


def test_the_reference_lists_every_public_name():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"auto(?:class|function):: (\S+)", text))
    members = re.search(r":members: (LinearOperator.*)", text)[1].split(",")
    listed |= {f"pymc_scalable_gp.linops.{name.strip()}" for name in members}
    rooms = {"ops": sgp.ops, "linops": sgp.linops}
    wanted = set(sgp.__all__) - {*rooms, "cov"}
    for name, room in rooms.items():
        wanted |= {f"pymc_scalable_gp.{name}.{each}" for each in room.__all__}
    listed = {name for name in listed if not name.startswith("pymc_scalable_gp.cov")}
    assert listed == wanted


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
