"""The ``recorded`` directive: what a benchmark script printed, with where and when.

The files of docs/benchmarks are written by ``make bench`` (tests/benchmarks/record.py).
"""

from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parent / "benchmarks"


class Recorded(SphinxDirective):
    """Command, output, and a line of date, machine and versions."""

    required_arguments = 1

    def run(self):
        path = RESULTS / f"{self.arguments[0]}.txt"
        if not path.exists():
            raise self.error(f"there is no {path.name} in docs/benchmarks: run `make bench`")
        self.env.note_dependency(str(path))
        head, printed = path.read_text(encoding="utf-8").split("\n\n", 1)
        facts = dict(line.removeprefix("# ").split(": ", 1) for line in head.splitlines())
        command = nodes.paragraph("", "", nodes.literal(text=facts.pop("command")))
        origin = nodes.paragraph("", "; ".join(facts.values()) + ".", classes=["origin"])
        block = nodes.literal_block(text=printed.rstrip(), language="none", classes=["recorded"])
        return [command, block, origin]


def setup(app):
    """Register the directive."""
    app.add_directive("recorded", Recorded)
    return {"parallel_read_safe": True}
