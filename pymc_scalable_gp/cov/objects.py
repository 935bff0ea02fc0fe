"""Kernels on strings, sets, histograms, categories and other objects, as `pm.gp.cov` covariances."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import Covariance
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from pymc_scalable_gp.ops.numeric_gram import NumericGram
from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.compiled import compiled
from pymc_scalable_gp.utils.graphs import fixed_shared, is_random, model_here
from pymc_scalable_gp.utils.internals import own_columns

# Pairs of objects on which a user's function is tried before anything else.
_TRIALS = 20

# Rows of a histogram kernel that are worked on at a time.
_ROWS = 256

# Its columns that are one term of its graph: compilers take long for a term per column.
_COLUMNS = 16


class Numeric(Covariance, ABC):
    """Base of kernels without parameters, whose matrix NumPy computes: once, where inputs are known."""

    @abstractmethod
    def matrix(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Kernel matrix (n, k) between rows X (n, d) and Z (k, d)."""

    def diagonal(self, X: np.ndarray) -> np.ndarray:
        """Prior variances (n,)."""
        return np.array([self.matrix(x[None], x[None])[0, 0] for x in X])

    def full(self, X, Xs=None):
        """Kernel matrix as a tensor."""
        X, Xs = own_columns(self, X, Xs)
        Z = X if Xs is None else Xs
        if is_random(X, Z):
            return NumericGram(self.matrix)(X, Z)
        return fixed_shared(self.matrix(*self._known(X, Z)))

    def diag(self, X):
        """Prior variances as a tensor."""
        X, _ = own_columns(self, X)
        if is_random(X):
            return pt.diag(NumericGram(lambda a, _: np.diag(self.diagonal(a)))(X, X))
        return fixed_shared(self.diagonal(*self._known(X)))

    def _known(self, *tensors) -> list[np.ndarray]:
        """Values of fixed inputs; ValueError for a model's data, which may change."""
        model = model_here(needed=False)
        known = set() if model is None else set(model.data_vars)
        if any(isinstance(v, SharedVariable) and v in known for v in ancestors(tensors)):
            raise ValueError(
                f"{type(self).__name__} needs fixed inputs: give X as an array in place of pm.Data"
            )
        return compiled([], list(tensors))()


class _OnObjects(Numeric):
    """Kernels whose inputs are places in a list of objects."""

    categorical = True  # nothing lies between two places

    def __init__(self, objects: Sequence, input_dim=1, active_dims=None):
        super().__init__(input_dim, active_dims)
        if len(self.active_dims) != 1:
            raise ValueError(
                f"{type(self).__name__} takes one column, the places in `objects`: give active_dims "
                f"with one column, got {list(self.active_dims)}"
            )
        if isinstance(objects, str | Set) or not hasattr(objects, "__len__") or not len(objects):
            raise TypeError(
                "objects must be a non-empty sequence, such as a list of strings; a set has no order"
            )
        self.objects = list(objects)

    def places(self, X) -> np.ndarray:
        """Checked places (n,)."""
        found, count = np.asarray(X)[:, 0], len(self.objects)
        bad = (found != np.round(found)) | (found < 0) | (found >= count)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"row {row} of X is {found[row]:g}, which is no place in the {count} objects: use "
                f"np.arange({count})[:, None] or a part of it"
            )
        return found.astype(int)


class FromFunction(_OnObjects):
    r"""Covariance from a Python function of two objects.

    .. math:: k(x, z) = \texttt{function}(\texttt{objects}[x], \texttt{objects}[z])

    X is one column of places in `objects`. Scale it with a random variable, multiply it with kernels on
    other columns, or add them, as any covariance.

    Parameters
    ----------
    function : callable
        ``function(a, b, **params) -> float``, symmetric and positive semidefinite.
    objects : sequence
        Anything: strings, sets, graphs. Training and new objects, in one list.
    input_dim, active_dims : int and list of int
        As in `pm.gp.cov`: the number of columns of X, and which of them holds the places.
    **params
        Numbers passed on to the function.

    Raises
    ------
    TypeError, ValueError
        If the function does not return a number, or is not symmetric on pairs that are tried; later, if
        it turns out not to be positive semidefinite.

    Notes
    -----
    Each column of the matrix over all objects takes ``len(objects)`` calls, once: it is kept.
    The function's parameters are fixed. There is no gradient in X.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> tags = [{"a", "b"}, {"b", "c"}, {"d"}]
    >>> cov = sgp.cov.FromFunction(lambda s, t: len(s & t) / len(s | t), tags)
    >>> cov(np.arange(3)[:, None]).eval().round(3)
    array([[1.   , 0.333, 0.   ],
           [0.333, 1.   , 0.   ],
           [0.   , 0.   , 1.   ]])
    """

    def __init__(
        self, function: Callable[..., float], objects: Sequence, *, input_dim=1, active_dims=None,
        **params: Any,
    ):  # fmt: skip
        super().__init__(objects, input_dim, active_dims)
        self.function, self.params = function, params
        self.kept: dict[int, np.ndarray] = {}
        rng, count = np.random.default_rng(0), len(self.objects)
        for i, j in rng.integers(0, count, (_TRIALS, 2)):
            there, back = self._value(i, j), self._value(j, i)
            if not np.isclose(there, back, rtol=1e-8, atol=1e-12):
                raise ValueError(
                    f"the kernel function is not symmetric: k(objects[{i}], objects[{j}]) is "
                    f"{there:g}, the other way round {back:g}"
                )

    def _value(self, i, j):
        value = np.asarray(self.function(self.objects[i], self.objects[j], **self.params))
        if value.shape != () or value.dtype.kind not in "fiub" or not np.isfinite(value):
            raise TypeError(
                f"the kernel function must return one finite number, got {value!r} for objects {i} and {j}"
            )
        return float(value)

    def _column(self, j):
        if j not in self.kept:
            self.kept[j] = np.array([self._value(i, j) for i in range(len(self.objects))])
        return self.kept[j]

    def matrix(self, X, Z):
        """By columns of the matrix over all objects."""
        rows, columns = self.places(X), self.places(Z)
        out = np.empty((len(rows), len(columns)))
        for own, j in zip(out.T, columns, strict=True):
            own[:] = self._column(int(j))[rows]
        return out

    def diagonal(self, X):
        """One call per row."""
        return np.array([self._value(i, i) for i in self.places(X)])


class Spectrum(_OnObjects):
    r"""Spectrum kernel of strings: inner product of the counts of all substrings of length k.

    .. math:: k(s, t) = \frac{\langle c(s), c(t)\rangle}{\|c(s)\|\,\|c(t)\|}

    Parameters
    ----------
    strings : sequence of str
        Each at least k long.
    k : int
        Length of the substrings.
    normalize : bool
        Divide by the norms, so that every variance is 1.
    input_dim, active_dims : int and list of int
        As in :class:`FromFunction`: X holds places in `strings`.

    Raises
    ------
    TypeError, ValueError
        If a string is shorter than k, or not a string.

    References
    ----------
    .. [1] Leslie, C., Eskin, E. and Noble, W. (2002). The spectrum kernel: a string kernel for SVM
       protein classification. Pacific Symposium on Biocomputing.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> cov = sgp.cov.Spectrum(["ABAB", "ABBA", "CCCC"], k=2)
    >>> cov(np.arange(3)[:, None]).eval().round(3)
    array([[1.   , 0.775, 0.   ],
           [0.775, 1.   , 0.   ],
           [0.   , 0.   , 1.   ]])
    >>> print(((2 * 1 + 1 * 1) / np.sqrt(5.0 * 3.0)).round(3))  # AB twice and once, BA once in each
    0.775
    """

    def __init__(
        self, strings: Sequence[str], k: int = 3, *, normalize=True, input_dim=1, active_dims=None
    ):
        super().__init__(strings, input_dim, active_dims)
        k = check_count("k", k)
        for i, s in enumerate(self.objects):
            if not isinstance(s, str):
                raise TypeError(f"strings[{i}] is not a string but {type(s).__name__}")
            if len(s) < k:
                raise ValueError(f"strings[{i}] is shorter than k={k}: {s!r}")
        # Its own "char" analyser would take a run of spaces for one.
        counter = CountVectorizer(
            analyzer=lambda s: [s[a : a + k] for a in range(len(s) - k + 1)], dtype=np.float64
        )
        self.counts = sparse.csr_array(counter.fit_transform(self.objects))
        if normalize:
            norms = np.sqrt(np.asarray(self.counts.multiply(self.counts).sum(axis=1)).ravel())
            self.counts = sparse.diags_array(1.0 / norms) @ self.counts
        self.counts = sparse.csr_array(self.counts)

    def matrix(self, X, Z):
        """A product of sparse matrices."""
        return (self.counts[self.places(X)] @ self.counts[self.places(Z)].T).toarray()

    def diagonal(self, X):
        """Squared norms."""
        rows = self.counts[self.places(X)]
        return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()


class HistogramIntersection(Numeric):
    r"""Intersection of histograms, ``k(x, z) = sum_i min(x_i, z_i)`` for non-negative columns.

    Parameters
    ----------
    input_dim, active_dims : int and sequence of int
        As in `pm.gp.cov`.

    Notes
    -----
    O(d) per entry. Random inputs have a gradient; negative ones among them make all NaN.

    References
    ----------
    .. [1] Barla, A., Odone, F. and Verri, A. (2003). Histogram intersection kernel for image
       classification. https://doi.org/10.1109/ICIP.2003.1247294

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> X = np.array([[1.0, 2.0], [2.0, 0.0]])
    >>> sgp.cov.HistogramIntersection(2)(X).eval()
    array([[3., 1.],
           [1., 2.]])
    """

    categorical = False

    def matrix(self, X, Z):
        """Rows at a time."""
        if X.min(initial=0.0) < 0 or Z.min(initial=0.0) < 0:
            raise ValueError("HistogramIntersection needs non-negative columns")
        out = np.zeros((len(X), len(Z)))
        for start in range(0, len(X), _ROWS):
            for a, b in zip(X[start : start + _ROWS].T, Z.T, strict=True):
                out[start : start + _ROWS] += np.minimum(a[:, None], b)
        return out

    def diagonal(self, X):
        """Row sums."""
        return X.sum(axis=1)

    def full(self, X, Xs=None):
        """Kernel matrix as a tensor, of random inputs with its gradient in them.

        New rows of a compiled prediction, which are an input of its graph, have none.
        """
        own, other = own_columns(self, X, Xs)
        other = own if other is None else other
        if not is_random(own, other, known=explicit_graph_inputs([own, other])):
            return super().full(X, Xs)
        some = [slice(i, i + _COLUMNS) for i in range(0, len(self.active_dims), _COLUMNS)]
        pairs = [(own[:, None, each], other[None, :, each]) for each in some]
        # On the diagonal both are the smaller one, and would count twice in a minimum's gradient.
        K = sum(pt.switch(pt.le(a, b), a, b).sum(axis=2) for a, b in pairs)
        return pt.switch(pt.any(own < 0.0) | pt.any(other < 0.0), np.nan, K)

    def diag(self, X):
        """Prior variances as a tensor."""
        own, _ = own_columns(self, X)
        return own.sum(axis=1) if is_random(own) else super().diag(X)


class Hamming(Covariance):
    r"""Kernel of categories, ``k(x, z) = exp(-#{i: x_i != z_i} / ls)``.

    Parameters
    ----------
    input_dim : int
        Number of columns of X.
    ls : scalar
        Number of differences at which the correlation has fallen to 1/e; may be random.
    active_dims : sequence of int, optional
        The columns with categories, as numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> X = np.array([[0, 1], [0, 2], [3, 4]])  # 1 and 2 differences from the first row
    >>> sgp.cov.Hamming(2, ls=1.0)(X).eval().round(3)
    array([[1.   , 0.368, 0.135],
           [0.368, 1.   , 0.135],
           [0.135, 0.135, 1.   ]])
    >>> np.exp([-1.0, -2.0]).round(3)
    array([0.368, 0.135])
    """

    categorical = True

    def __init__(self, input_dim: int, ls, active_dims=None):
        super().__init__(input_dim, active_dims)
        self.ls = pt.as_tensor_variable(ls)
        if self.ls.ndim:
            raise ValueError(f"ls must be a scalar, got shape {self.ls.type.shape}")
        if isinstance(self.ls, Constant) and not self.ls.data > 0.0:
            raise ValueError(f"ls must be positive, got {self.ls.data:g}")

    def full(self, X, Xs=None):
        """Kernel matrix."""
        X, Xs = own_columns(self, X, Xs)
        Z = X if Xs is None else Xs
        d = len(self.active_dims)
        differ = sum(pt.neq(X[:, i][:, None], Z[:, i][None, :]).astype("int32") for i in range(d))
        return pt.exp(-differ / self.ls)

    def diag(self, X):
        """Ones."""
        return pt.alloc(1.0, X.shape[0])
