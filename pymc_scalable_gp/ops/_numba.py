"""Registration of an Op's Numba form under a cache key that follows its source."""

import zlib
from functools import cache
from pathlib import Path

from pytensor.link.numba.dispatch import basic as nb


@cache
def source_version() -> int:
    """Checksum of the sources of all Ops."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return zlib.crc32(b"".join(file.read_bytes() for file in files))


def register_numba(op_class):
    """Decorator: ``build(op) -> numba_njit function`` becomes the Numba form of `op_class`.

    PyTensor keeps compiled functions on disk under the Op's properties and a version number. The
    number is a checksum of this folder, so an edit never meets the machine code of an earlier one.
    """

    def decorate(build):
        @nb.register_funcify_default_op_cache_key(op_class)
        def funcify(op, node=None, **kwargs):
            return build(op), source_version()

        return build

    return decorate
