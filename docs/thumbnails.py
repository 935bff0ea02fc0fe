"""Makes the thumbnails of the tutorials' cards, docs/_static/thumbnails/NAME.png.

Run after `make docs`: takes one picture of each executed tutorial.
"""

import base64
from io import BytesIO
from pathlib import Path

from jupyter_cache import get_cache
from PIL import Image, ImageOps

HERE = Path(__file__).parent
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


def main():
    cache = get_cache(HERE / "_outputs")
    folder = HERE / "_static" / "thumbnails"
    folder.mkdir(exist_ok=True)
    for record in sorted(cache.list_cache_records(), key=lambda each: each.created):
        name = Path(record.uri).stem
        if name not in PICTURES:
            continue
        bundle = cache.get_cache_bundle(record.pk)
        chosen = list(pictures(bundle.nb))[PICTURES[name]]
        image = ImageOps.pad(Image.open(BytesIO(chosen)).convert("RGB"), SIZE, color="white")
        image.quantize(COLOURS).save(folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
