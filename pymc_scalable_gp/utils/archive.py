"""NumPy's archives that this package wrote."""

from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from zipfile import BadZipFile

import numpy as np


def write_archive(path: Path, **arrays) -> None:
    """Write NumPy's npz, under just this name: whole, or not at all."""
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("wb") as file:
        np.savez(file, package=version("pymc_scalable_gp"), **arrays)
    unfinished.replace(path)


def read_archive(path, names: set[str], layout: int, foreign: str, again: str) -> dict:
    """Arrays by name.

    Raises ValueError in the words of `foreign` for a file that is no archive with these `names`, and
    where its ``format`` is not the `layout`, with how to make it `again`.
    """
    try:
        found = np.load(path, allow_pickle=False)
        with found if hasattr(found, "files") else nullcontext(found):
            arrays = {name: found[name] for name in getattr(found, "files", ())}
    except (ValueError, BadZipFile, EOFError) as error:
        raise ValueError(foreign) from error
    if not names <= set(arrays):
        raise ValueError(foreign)
    if int(arrays["format"]) != layout:
        raise ValueError(
            f"{path} was written by pymc_scalable_gp {arrays['package']}, in another layout: {again}, or "
            "read it with that version"
        )
    return arrays
