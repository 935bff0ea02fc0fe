"""Memory that is free, on this machine and on the accelerator that densities are compiled for."""

import os

from pymc_scalable_gp.utils.compiled import in_jax

ASSUMED = 8 * 2**30  # bytes, where the system does not tell


def free_memory() -> float:
    """Bytes that no process holds, of all the machine's where only these are known."""
    for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
        if name in getattr(os, "sysconf_names", {}):
            return float(os.sysconf(name)) * os.sysconf("SC_PAGE_SIZE")
    return float(ASSUMED)


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
