"""Warnings at the user's line."""

import contextlib
import functools
import os
import warnings
from pathlib import Path

import pymc
import pytensor

# Files that the user did not write: this package, the libraries that call back into it, and the two
# modules of Python's own whose wrappers stand between them.
_FOREIGN = (
    *(str(folder) + os.sep for folder in (
        Path(__file__).parents[1], Path(pymc.__file__).parent, Path(pytensor.__file__).parent,
    )),
    contextlib.__file__,
    functools.__file__,
)  # fmt: skip


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's code that led here, however deep in the package this is."""
    warnings.warn(text, category, skip_file_prefixes=_FOREIGN)
