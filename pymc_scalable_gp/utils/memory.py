"""Memory that is free, on this machine and on the accelerator that densities are compiled for."""

import os
from pathlib import Path

import numpy as np

from pymc_scalable_gp.utils.compiled import in_jax

ASSUMED = 8 * 2**30  # bytes, where the system does not tell
ROOT = Path("/")  # of the files in which Linux tells


def free_memory() -> float:
    """Bytes that a process can have: of all the machine's where only these are known.

    On Linux files that are kept in memory count as free, and a container has no more than its limit.
    """
    for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
        if name in getattr(os, "sysconf_names", {}):
            free = float(os.sysconf(name)) * os.sysconf("SC_PAGE_SIZE")
            free = 1024.0 * _number("proc/meminfo", "MemAvailable:", free / 1024.0)
            used = _number("sys/fs/cgroup/memory.current", None, 0.0)
            used -= _number("sys/fs/cgroup/memory.stat", "inactive_file", 0.0)
            return min(free, max(0.0, _number("sys/fs/cgroup/memory.max", None, np.inf) - used))
    return float(ASSUMED)


def _number(file: str, word: str | None, default: float) -> float:
    """The number in a file of Linux, or that after a `word` of it; `default` where there is none."""
    try:
        words = (ROOT / file).read_text().split()
        return float(words[words.index(word) + 1 if word else 0])
    except (OSError, ValueError, IndexError):  # no such file, or "max": no limit
        return default


def accelerator():
    """The device of JAX that functions run on in PyTensor's present mode; None for the processor itself."""
    if not in_jax():
        return None
    import jax

    device = jax.devices()[0]
    return None if device.platform == "cpu" else device


def free_on(device) -> float:
    """Bytes that are free on one of JAX's devices, of those that JAX may take."""
    stats = device.memory_stats() or {}
    return float(stats.get("bytes_limit", ASSUMED) - stats.get("bytes_in_use", 0))
