"""How fast this machine is, measured in a second, and what it has."""

import os
import time
from typing import NamedTuple

import numpy as np
from scipy import fft, linalg
from threadpoolctl import threadpool_limits

# Where the operating system does not tell.
ASSUMED_MEMORY = 8 * 2**30


class Rates(NamedTuple):
    """Operations a second of one thread, and what the machine has."""

    product: float  # floating-point operations of matrix products
    cholesky: float  # of a large Cholesky factor
    small: float  # of stacked Cholesky factors of some forty rows
    memory: float  # numbers read or written, in passes over large arrays
    fourier: float  # points of a transform, times log2 of their number
    entries: float  # entries of this kernel's matrix
    free: float  # bytes of memory that no process holds
    chains: int  # that run side by side, one a core


class Work(NamedTuple):
    """Operations of an evaluation, by kind, in the units of :class:`Rates`."""

    product: float = 0.0
    cholesky: float = 0.0
    small: float = 0.0
    memory: float = 0.0
    fourier: float = 0.0
    entries: float = 0.0

    def seconds(self, rates: Rates) -> float:
        """Time of all of them, one after the other."""
        return sum(getattr(self, kind) / getattr(rates, kind) for kind in self._fields)


def measure(kernel_entries: float) -> Rates:
    """Rates of one BLAS thread: chains run side by side, one a core.

    Parameters
    ----------
    kernel_entries : float
        Entries a second of the kernel at hand, as its evaluation has shown.
    """
    rng = np.random.default_rng(0)
    tall, square = rng.standard_normal((4000, 300)), rng.standard_normal((300, 300))
    gram = tall.T @ tall + np.eye(300)
    large = np.eye(900) + np.full((900, 900), 0.1)
    stack = np.broadcast_to(gram[:46, :46], (300, 46, 46)).copy()
    wave = rng.standard_normal(2**16)
    return Rates(
        product=2 * 4000 * 300**2 / shortest(lambda: tall @ square),
        cholesky=900**3 / 3 / shortest(lambda: linalg.cholesky(large, check_finite=False)),
        small=300 * 46**3 / 3 / shortest(lambda: np.linalg.cholesky(stack)),
        memory=3 * tall.size / shortest(lambda: tall * tall),
        fourier=2**16 * 16 / shortest(lambda: fft.rfft(wave)),
        entries=kernel_entries,
        free=free_memory(),
        chains=min(4, cores()),
    )


def shortest(call, repeats: int = 5) -> float:
    """Seconds of the fastest of a few calls on one thread, without the time that other programs took."""
    times = []
    with threadpool_limits(1):
        for _ in range(repeats):
            start = time.thread_time()
            call()
            times.append(time.thread_time() - start)
    return max(min(times), 1e-7)


def free_memory() -> float:
    """Bytes that no process holds, of all the machine's where only these are known."""
    for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
        if name in getattr(os, "sysconf_names", {}):
            return float(os.sysconf(name)) * os.sysconf("SC_PAGE_SIZE")
    return float(ASSUMED_MEMORY)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
