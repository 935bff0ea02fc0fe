"""Threads of this process: of BLAS, and those that call one compiled function."""

from contextlib import suppress
from functools import cache

from threadpoolctl import ThreadpoolController

from pymc_scalable_gp.utils.compiled import TURN, compiled


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries, which take longer to find than a prediction takes."""
    return ThreadpoolController().select(user_api="blas")


def one_blas_thread():
    """Context in which BLAS runs in the thread that calls it alone."""
    return _blas().limit(limits=1)


class ForThreads:
    """A compiled function that threads may call at once, by copies; what was compiled is not pickled."""

    def __init__(self, inputs, outputs, **options):
        self._given, self._options = (inputs, outputs), options
        self._first, self._free = None, []

    def __getstate__(self):
        return self.__dict__ | {"_first": None, "_free": []}

    def __call__(self, *values):
        """Values of the outputs."""
        function = self._taken()
        try:
            return function(*values)
        finally:
            self._free.append(function)

    @property
    def compiled(self):
        """The function itself."""
        if self._first is None:
            self._free.append(self._taken())
        return self._first

    def _taken(self):
        """A copy that no thread runs, a new one if there is none."""
        with suppress(IndexError):
            return self._free.pop()
        with TURN:
            if self._first is not None:
                return self._first.copy()
            self._first = compiled(*self._given, **self._options)
            return self._first
