"""Keeps the outputs of the tutorials, docs/_outputs, and their cards' pictures, docs/_static/thumbnails.

Run after `make docs`, which executes the tutorials that changed; commit what it writes.
"""

import base64
import shutil
from io import BytesIO
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from PIL import Image, ImageOps

HERE = Path(__file__).parent
BUILT, KEPT = HERE / "_build" / "outputs", HERE / "_outputs"
SIZE, COLOURS = (480, 270), 64

# Which of the tutorial's pictures, counted from the first.
PICTURES = {
    "first_model": 1, "trust": 1, "priors": 1, "a_million_rows": 0, "counts_and_classes": 2, "gaps": 2,
    "space_time": 1, "many_outputs": 1, "strings_sets": 1, "workflow": 4, "larger_models": 2,
}  # fmt: skip


def pictures(notebook):
    """PNG pictures in the outputs of a notebook, in their order."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            found = output.get("data", {}).get("image/png")
            if found:
                yield base64.b64decode(found)


def thumbnail(name, notebook):
    """Write the picture of a tutorial's card."""
    chosen = list(pictures(notebook))[PICTURES[name]]
    image = ImageOps.pad(Image.open(BytesIO(chosen)).convert("RGB"), SIZE, color="white")
    image.quantize(COLOURS).save(HERE / "_static" / "thumbnails" / f"{name}.png", optimize=True)


def main():
    """Take the last outputs of each tutorial."""
    built = get_cache(BUILT)
    records = sorted(built.list_cache_records(), key=lambda each: each.created)
    latest = {Path(record.uri).stem: record for record in records}
    shutil.rmtree(KEPT, ignore_errors=True)
    kept = get_cache(KEPT)
    for name in sorted(PICTURES.keys() & latest.keys()):
        bundle = built.get_cache_bundle(latest[name].pk)
        # By its bare name: the path belongs to this machine.
        given = CacheBundleIn(bundle.nb, f"{name}.md", data=latest[name].data)
        kept.cache_notebook_bundle(given, check_validity=False)
        thumbnail(name, bundle.nb)


if __name__ == "__main__":
    main()
