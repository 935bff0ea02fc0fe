"""Warnings that point at the caller's line."""

import warnings
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1])


def warn(text: str) -> None:
    """Warn of `text`, at the line outside the package from which it was entered."""
    warnings.warn(text, UserWarning, skip_file_prefixes=(PACKAGE,))
