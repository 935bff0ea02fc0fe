"""Threads of this process: of BLAS, and those that call one compiled function."""

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
    """A compiled function that several threads may call at once, with as many copies of its storage.

    It can be pickled: what was compiled stays behind.
    """

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
        with TURN:
            if self._first is None:
                self._first = compiled(*self._given, **self._options)
                self._free.append(self._first)
            return self._first

    def _taken(self):
        """A copy that no thread runs, a new one if there is none."""
        first = self.compiled
        try:
            return self._free.pop()
        except IndexError:
            with TURN:
                return first.copy()
