"""Write the map of the code in CONTRIBUTING.md: each module with the first line of its docstring."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pymc_scalable_gp"
BEGIN, END = "<!-- map: made by `make map` -->\n", "<!-- end of map -->\n"
# From the public names down: nothing imports what stands above it.
ROOMS = ("advice", "importance", "methods", "core", "cov", "linops", "ops", "utils")


def summary(path):
    """First line of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0].rstrip(".") if text else ""


def lines(folder, depth):
    """One line a module, folders after files."""
    names = sorted(p for p in folder.iterdir() if p.suffix == ".py" and p.name != "__init__.py")
    found = [f"{'  ' * depth}{path.name:<{26 - 2 * depth}} {summary(path)}" for path in names]
    for inner in sorted(p for p in folder.iterdir() if (p / "__init__.py").exists()):
        found += folder_lines(inner, depth)
    return found


def folder_lines(folder, depth):
    """A folder's own line, then its modules."""
    name = f"{folder.name}/"
    head = f"{'  ' * depth}{name:<{26 - 2 * depth}} {summary(folder / '__init__.py')}"
    return [head, *lines(folder, depth + 1)]


def code_map():
    """The map, as it stands in CONTRIBUTING.md."""
    found = ["pymc_scalable_gp/", f"  {'__init__.py':<24} The public names, and _public.py"]
    for path in sorted(PACKAGE.glob("[!_]*.py")):
        found += [f"  {path.name:<24} {summary(path)}"]
    for room in ROOMS:
        found += folder_lines(PACKAGE / room, 1)
    return "\n".join(["```", *found, "```"]) + "\n"


def split():
    """CONTRIBUTING.md before, in and after the map."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    inside, after = rest.split(END)
    return before, inside, after


if __name__ == "__main__":
    before, _, after = split()
    (ROOT / "CONTRIBUTING.md").write_text(before + BEGIN + code_map() + END + after, encoding="utf-8")
