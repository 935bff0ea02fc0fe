"""Memory that is free."""

import os

ASSUMED = 8 * 2**30  # bytes, where the system does not tell


def free_memory() -> float:
    """Bytes that no process holds, of all the machine's where only these are known."""
    for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
        if name in getattr(os, "sysconf_names", {}):
            return float(os.sysconf(name)) * os.sysconf("SC_PAGE_SIZE")
    return float(ASSUMED)
