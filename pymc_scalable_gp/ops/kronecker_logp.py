"""Log density of a tensor whose covariance is a Kronecker product plus noise, and its gradient."""

from functools import cache

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._base import GufuncOp, store
from pymc_scalable_gp.ops._elementwise import (
    all_finite,
    all_positive,
    multiply_by,
    set_product,
    set_ratio,
    sum_log,
    sum_product,
)
from pymc_scalable_gp.ops._jax import jax_form, jnp
from pymc_scalable_gp.ops._kernels import eigen_rows, empty_matrix, multiply_any
from pymc_scalable_gp.ops._lowrank_terms import LOG_2PI
from pymc_scalable_gp.ops._numba import from_source, inlined, register_numba


class _Kronecker(GufuncOp):
    """Op on the factors of `dims` dimensions; `shapes` is its signature, for any number of them."""

    __props__ = ("dims",)
    shapes: str

    def __init__(self, dims: int):
        self.dims = int(dims)
        names = [f"m{i}" for i in range(self.dims)]
        self.gufunc_signature = self.shapes.format(
            cells=f"({','.join(names)})",
            squares=",".join(f"({m},{m})" for m in names),
            values=",".join(f"({m})" for m in names),
        )

    def perform(self, node, inputs, output_storage):
        function = _function(type(self), self.dims, True)
        store(output_storage, function(*(np.asarray(x, order="C") for x in inputs)))


class KroneckerLogp(_Kronecker):
    """Log density, residual over its variances in the eigenbasis, eigenvectors as rows, eigenvalues.

    The inputs are the factors, the noise and the residual (see `kronecker_logp`). Only the density can be
    differentiated.
    """

    differentiable_outputs = (0,)

    shapes = "{squares},(),{cells}->(),{cells},{squares},{values}"

    def pullback(self, inputs, outputs, cotangents):
        r"""``K_i_bar = g U_i (A_i W_i A_i' - diag(t_i)) U_i' / 2``, and ``e_bar = -g (U_1 (x) ...) A``.

        A is the second output, and A_i the matrix of its fibres along axis i, ``W_i`` the diagonal
        matrix of the products w of the other factors' eigenvalues, and ``t_ia = sum_w w / (l_ia w +
        noise)``. Nothing is divided by differences of eigenvalues: equal ones do no harm.
        ``noise_bar = g (|A|^2 - sum 1 / (lambda + noise)) / 2``.
        """
        _, scaled, *parts = outputs
        g = cotangents[0]
        found = KroneckerLogpGrad(self.dims)(scaled, inputs[self.dims], g, *parts)
        return [*found, -g * KroneckerTurn(self.dims)(*parts[: self.dims], scaled)]


class KroneckerLogpGrad(_Kronecker):
    """Gradients in the factors and the noise. It has none itself."""

    shapes = "{cells},(),(),{squares},{values}->{squares},()"


class KroneckerTurn(_Kronecker):
    """``(U_1 (x) U_2 (x) ...) values`` for eigenvectors as rows, ``U_i'``. It has no gradient itself."""

    shapes = "{squares},{cells}->{cells}"


def kronecker_logp(factors, noise, residual):
    r"""Log density of `residual` under a Kronecker product of covariances plus noise.

    .. math:: \log p = -\tfrac12 \sum_j \Big( \frac{\alpha_j^2}{\lambda_j + \sigma^2}
        + \log(\lambda_j + \sigma^2) + \log 2\pi \Big), \qquad
        \alpha = (U_1 \otimes U_2 \otimes \cdots)^\top e, \quad
        \lambda = l_1 \otimes l_2 \otimes \cdots

    with :math:`K_i = U_i \operatorname{diag}(l_i) U_i^\top`.

    Parameters
    ----------
    factors : sequence of tensors, shapes (m_1, m_1), (m_2, m_2), ...
        Count as symmetric: the lower triangles are read.
    noise : tensor, scalar
        Noise variance.
    residual : tensor, shape (m_1, m_2, ...)

    Returns
    -------
    scalar tensor
        NaN where the covariance is not positive definite. Differentiable once in all arguments, at
        equal eigenvalues too.

    Raises
    ------
    ValueError
        Without a factor.
    TypeError
        For tensors of other dimensions.

    Notes
    -----
    ``O(sum_i m_i^3 + n sum_i m_i)`` for n cells, with the gradient too; memory is a few arrays of n.

    References
    ----------
    .. [1] Saatci, Y. (2011). Scalable inference for structured Gaussian process models. PhD thesis,
       University of Cambridge, chapter 5.
    .. [2] Wilson, A. G. et al. (2014). Fast kernel learning for multidimensional pattern extrapolation.
       NeurIPS 27. https://doi.org/10.48550/arXiv.1310.5288

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> import pymc_scalable_gp as sgp
    >>> A, B = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> e = np.array([[0.5, -0.5], [1.0, 0.0]])
    >>> print(sgp.ops.kronecker_logp([A, B], 0.1, e).eval().round(4))
    -5.0712
    >>> S = np.kron(A, B) + 0.1 * np.eye(4)
    >>> print(stats.multivariate_normal(cov=S).logpdf(e.ravel()).round(4))
    -5.0712
    """
    factors = list(factors)
    if not factors:
        raise ValueError("factors must hold at least one matrix")
    return KroneckerLogp(len(factors))(*factors, noise, residual)[0]


@register_jitable
def others_product(values, axis):
    """Products of the eigenvalues of all factors but one, in the cyclic order of the axes after it."""
    out = np.ones(1)
    for step in range(1, len(values)):
        out = np.outer(out, values[(axis + step) % len(values)]).ravel()
    return out


@register_jitable
def _turned(vectors, values, forth):
    """Values in the eigenbasis where `forth`, or back from it: one factor after the other.

    Each is applied to the first axis, which then moves last.
    """
    out = values
    for i in range(len(vectors)):
        m = vectors[i].shape[0]
        rest = out.size // max(m, 1)
        moved = empty_matrix(rest, m)
        multiply_any(out.reshape((m, rest)), vectors[i], True, forth, moved)
        out = moved.reshape(values.size)
    return out


@inlined
def _terms(vectors, values, noise, e):
    """Log density and ``alpha / (lambda + noise)``; `vectors`, the factors, become eigenvectors."""
    out, good = e, all_finite(e) and np.isfinite(noise)
    for i in range(len(vectors)):
        for j in range(len(values[i])):
            good = good and all_finite(vectors[i][j, : j + 1])
        good = good and eigen_rows(vectors[i], values[i])
    logp = np.nan
    if good:
        spread = np.outer(values[0], others_product(values, 0)).ravel() + noise
        if all_positive(spread):
            logp = -0.5 * (sum_log(spread) + e.size * LOG_2PI)
            out = _turned(vectors, e, True)
            set_ratio(spread, out, spread)
            logp -= 0.5 * sum_product(out, spread)
            out = spread
    if not np.isfinite(logp):
        logp, out = np.nan, np.full(e.size, np.nan)
        for i in range(len(vectors)):
            vectors[i][:] = np.nan
            values[i][:] = np.nan
    return logp, out


@inlined
def _slopes(scaled, noise, g, vectors, values, bars):
    """Fill `bars` with the factors' gradients, and return the noise's."""
    noise_bar = sum_product(scaled, scaled)
    for i in range(len(vectors)):
        m = len(values[i])
        others = others_product(values, i)
        fibres, weighted = scaled.reshape((m, others.size)), empty_matrix(m, others.size)
        core, half = empty_matrix(m, m), empty_matrix(m, m)
        for j in range(m):
            set_product(weighted[j], fibres[j], others)
        multiply_any(weighted, fibres, False, True, core)
        for j in range(m):
            spread = 1.0 / (values[i][j] * others + noise)
            core[j, j] -= sum_product(spread, others)
            if i == 0:
                noise_bar -= np.sum(spread)
        multiply_any(core, vectors[i], False, False, half)
        multiply_any(vectors[i], half, True, False, bars[i])
        multiply_by(bars[i].ravel(), 0.5 * g)
        scaled = np.ascontiguousarray(fibres.T).ravel()
    return 0.5 * g * noise_bar


def _each(form, dims):
    """The text of a tuple with an entry for each factor, of number {i}."""
    return "".join(f"{form.format(i=i)}, " for i in range(dims))


def _logp_source(dims):
    """Numba takes no variable number of arguments: a function for each number of factors."""
    return [
        f"def kroneckerlogp({_each('k{i}', dims)}noise, e):",
        f"    vectors = ({_each('k{i}.copy()', dims)})",
        f"    values = ({_each('np.empty(k{i}.shape[0])', dims)})",
        "    logp, scaled = body(vectors, values, noise.item(), e.copy().reshape(e.size))",
        f"    return np.asarray(logp), scaled.reshape(e.shape), "
        f"{_each('vectors[{i}]', dims)}{_each('values[{i}]', dims)}",
    ]


def _slope_source(dims):
    V, lengths = _each("v{i}", dims), _each("l{i}", dims)
    return [
        f"def kroneckerlogpgrad(scaled, noise, g, {V}{lengths}):",
        f"    bars = ({_each('np.empty(v{i}.shape)', dims)})",
        "    flat = scaled.copy().reshape(scaled.size)",
        f"    noise_bar = body(flat, noise.item(), g.item(), ({V}), ({lengths}), bars)",
        f"    return {_each('bars[{i}]', dims)}np.asarray(noise_bar)",
    ]


def _turn_source(dims):
    V = _each("v{i}", dims)
    return [
        f"def kroneckerturn({V}values):",
        f"    return body(({V}), values.copy().reshape(values.size), False).reshape(values.shape)",
    ]


_SOURCES = {
    KroneckerLogp: (_logp_source, _terms),
    KroneckerLogpGrad: (_slope_source, _slopes),
    KroneckerTurn: (_turn_source, _turned),
}


@cache
def _function(op_class, dims, in_python=False):
    """Function of the inputs of an Op, for Python or Numba."""
    source, body = _SOURCES[op_class]
    body = getattr(body, "py_func", body) if in_python else body
    scope = {"np": np, "body": body, "__name__": __name__}
    function = from_source("\n".join(source(dims)), op_class.__name__.lower(), scope)
    return function.py_func if in_python else function


for _kind in _SOURCES:
    register_numba(_kind)(lambda op: _function(type(op), op.dims))


def _jax_products(values):
    """All products of one entry from each vector, as a tensor."""
    out = jnp.ones(())
    for each in values:
        out = out[..., None] * each
    return out


@jax_form(KroneckerLogp)
def _jax_terms(*given):
    *factors, noise, e, _dims = given
    pairs = [jnp.linalg.eigh(jnp.tril(K) + jnp.tril(K, -1).T, symmetrize_input=False) for K in factors]
    spread = _jax_products([values for values, _ in pairs]) + noise
    alpha = e
    for _, vectors in pairs:
        alpha = jnp.tensordot(alpha, vectors, axes=(0, 0))
    scaled = alpha / spread
    logp = -0.5 * (jnp.log(spread) + alpha * scaled + LOG_2PI).sum()
    found = logp, scaled, *(vectors.T for _, vectors in pairs), *(values for values, _ in pairs)
    return tuple(jnp.where(jnp.isfinite(logp), x, jnp.nan) for x in found)


@jax_form(KroneckerLogpGrad, differentiable=False)
def _jax_slopes(scaled, noise, g, *parts):
    *parts, dims = parts
    vectors, values = parts[:dims], parts[dims:]
    spread, bars = 1.0 / (_jax_products(values) + noise), []
    for i in range(dims):
        others = _jax_products([jnp.ones_like(v) if j == i else v for j, v in enumerate(values)])
        fibres, weighted, traces = (
            jnp.moveaxis(x, i, 0).reshape((len(values[i]), -1))
            for x in (scaled, scaled * others, spread * others)
        )
        core = weighted @ fibres.T - jnp.diag(traces.sum(axis=1))
        bars.append(0.5 * g * vectors[i].T @ core @ vectors[i])
    return *bars, 0.5 * g * ((scaled**2).sum() - spread.sum())


@jax_form(KroneckerTurn, differentiable=False)
def _jax_turned(*given):
    *vectors, out, _dims = given
    for rows in vectors:
        out = jnp.tensordot(out, rows, axes=(0, 0))
    return out
