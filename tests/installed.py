"""A page's example, or the doctests, run by the installed package in an environment without the checkout.

python -I tests/installed.py [README.md]
"""

import doctest
import re
import sys
import time
from pathlib import Path

import pymc_scalable_gp as sgp

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def example(page: Path) -> None:
    """All Python blocks of a page in one namespace."""
    code = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.S | re.M)
    exec(compile("\n".join(code), page.name, "exec"), {"__name__": "__main__"})


def doctests() -> doctest.TestResults:
    """Examples of all public names, each with nothing imported beforehand."""
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(optionflags=FLAGS)
    for room in (sgp, sgp.cov, sgp.ops, sgp.linops):
        for name in room.__all__:
            for test in finder.find(getattr(room, name), name, globs={}):
                runner.run(test)
    return runner.summarize()


if __name__ == "__main__":
    if "site-packages" not in sgp.__file__:
        sys.exit(f"{sgp.__file__} is not installed: run with python -I")
    start, failed = time.perf_counter(), 0
    if sys.argv[1:]:
        example(Path(sys.argv[1]))
        told = f"the example of {sys.argv[1]}"
    else:
        failed, attempted = doctests()
        told = f"{attempted} lines of doctests, {failed} of them wrong"
    seconds = time.perf_counter() - start
    sys.stdout.write(f"pymc_scalable_gp {sgp.__version__}: {told}, {seconds:.0f} s\n")
    sys.exit(failed > 0)
