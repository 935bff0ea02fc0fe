"""The code of the pages runs: each page from top to bottom in a fresh process."""

import os
import subprocess
import sys

import pytest
from snippets import blocks
from test_docs import PAGES, ROOT

RUN = [page for page in PAGES if blocks(page)]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_page_runs(page, tmp_path):
    given = [sys.executable, str(ROOT / "tests" / "snippets.py"), str(page)]
    threads = {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(given, cwd=tmp_path, env=os.environ | threads, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
