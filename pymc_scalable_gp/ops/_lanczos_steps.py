"""The recurrences of `lanczos` and of its adjoint, in one source for Python and Numba, and in JAX.

Basis vectors are rows, so that each is contiguous. ``matmat(V, *parameters)`` multiplies by the operator;
``vjp(V, G, *parameters)`` is the flat gradient of ``sum(G * (A V))`` in the parameters.
"""

import numpy as np

from pymc_scalable_gp.ops._elementwise import add, add_multiple, fill_from, subtract
from pymc_scalable_gp.ops._jax import jax, jnp

# A new direction shorter than this share of the operator's norm, as far as that is known, is rounding:
# the space is invariant, and the basis ends.
BREAKDOWN = 1e-13


# Steps whose cotangents are below this share of the largest hardly move the result, wherever in the
# spectrum their alpha lies; but their derivatives grow with every small beta, and times what rounding and
# jitter (1e-12 of a trace) leave of a cotangent that should be zero they can be all of the gradient.
NEGLIGIBLE = 1e-11


# Columns whose parameter gradients are taken together.
CHUNK = 16


def plain(function):
    """The function as it is: the Python form."""
    return function


def build_forward(matmat, jit=plain):
    """``(b, steps, *parameters) -> Q (steps + 1, n), alpha (steps,), beta (steps,)``."""

    @jit
    def forward(b, steps, *parameters):
        Q = np.zeros((steps + 1, b.size))
        alpha, beta = np.zeros(steps), np.zeros(steps)
        length = np.sqrt(np.dot(b, b))
        if length != 0.0:  # NaN stays NaN, here and below
            add_multiple(Q[0], 1.0 / length, b)
        scale = 0.0
        for j in range(steps):
            if length == 0.0:
                break
            w = np.ascontiguousarray(matmat(Q[j].copy().reshape((-1, 1)), *parameters)[:, 0])
            if j > 0:
                add_multiple(w, -beta[j - 1], Q[j - 1])
            alpha[j] = np.dot(Q[j], w)
            add_multiple(w, -alpha[j], Q[j])
            # The three-term recurrence is one orthogonalisation; another, against all, completes it.
            before = np.sqrt(np.dot(w, w))
            for _ in range(3):
                h = np.dot(Q[: j + 1], w)
                subtract(w, np.dot(Q[: j + 1].T, h))
                alpha[j] += h[j]
                length = np.sqrt(np.dot(w, w))
                if length > 0.5 * before:
                    break
                before = length
            scale = max(scale, abs(alpha[j]) + length)
            if length <= BREAKDOWN * scale:
                length = 0.0
                break
            beta[j] = length
            add_multiple(Q[j + 1], 1.0 / length, w)
        return Q, alpha, beta

    return forward


def build_backward(matmat, vjp, chunk, jit=plain):
    r"""``(Q, alpha, beta, b, Q_bar, alpha_bar, beta_bar, parameters) -> b_bar, flat parameter gradient``.

    With multipliers lambda_j of ``A q_j = beta_{j-1} q_{j-1} + alpha_j q_j + beta_j q_{j+1}`` and a
    symmetric Gamma of ``Q'Q = I``, the gradient in A is ``sum_j lambda_j q_j'``, and, for j = P, ..., 1,

    .. math:: \beta_{j-1} \lambda_{j-1} = r_j + \dots, \qquad
        r_j = \bar q_j + (A - \alpha_j I)\,\lambda_j - \beta_j \lambda_{j+1}
              + \sum_{k > j} \Gamma_{kj}\, q_k

    where the dots are what makes ``q_i' lambda_{j-1}`` zero for i < j - 1, ``alpha_bar_{j-1}`` for
    i = j - 1 and ``beta_bar_{j-1}`` for i = j. Gamma follows from those products alone:
    ``Gamma_kj = -q_j' q_bar_k``, and for k = j + 1 also ``beta_j (alpha_bar_j - alpha_bar_{j+1})``. Only
    differences of A and alpha_j are multiplied, so that a nearly constant matrix, all of whose beta are
    small, keeps its digits. An empty `Q_bar` is zero.
    """

    @jit
    def backward(Q, alpha, beta, b, Q_bar, alpha_bar, beta_bar, parameters):
        steps, n, with_basis = alpha.size, b.size, Q_bar.size > 0
        if not with_basis:
            alpha_bar, beta_bar = alpha_bar.copy(), beta_bar.copy()
            least = NEGLIGIBLE * max(np.abs(alpha_bar).max(), np.abs(beta_bar).max())
            for j in range(steps):
                alpha_bar[j] = 0.0 if abs(alpha_bar[j]) < least else alpha_bar[j]
                beta_bar[j] = 0.0 if abs(beta_bar[j]) < least else beta_bar[j]
        flat = np.zeros(0)
        V, W = np.zeros((chunk, n)), np.zeros((chunk, n))
        held = 0
        multiplier, ahead = np.zeros(n), np.zeros(n)  # lambda_j and lambda_{j+1}
        for j in range(steps, -1, -1):
            r = np.zeros(n)
            if j < steps:
                add(r, matmat(multiplier.copy().reshape((-1, 1)), *parameters)[:, 0])
                add_multiple(r, -alpha[j], multiplier)
                add_multiple(r, -beta[j], ahead)
                change = alpha_bar[j] - (alpha_bar[j + 1] if j + 1 < steps else 0.0)
                add_multiple(r, beta[j] * change, Q[j + 1])
                if with_basis:
                    subtract(r, np.dot(Q[j + 1 :].T, np.dot(Q_bar[j + 1 :], Q[j])))
            if with_basis:
                add(r, Q_bar[j])
            subtract(r, np.dot(Q[: j + 1].T, np.dot(Q[: j + 1], r)))
            if j == 0:
                break
            ahead, multiplier = multiplier, np.zeros(n)
            if beta[j - 1] != 0.0:
                add_multiple(multiplier, 1.0 / beta[j - 1], r)
                add_multiple(multiplier, beta_bar[j - 1], Q[j])
            add_multiple(multiplier, alpha_bar[j - 1], Q[j - 1])
            fill_from(V[held], Q[j - 1])
            fill_from(W[held], multiplier)
            held += 1
            if held == chunk or j == 1:
                W[held:] = 0.0
                more = np.ascontiguousarray(vjp(V.T.copy(), W.T.copy(), *parameters))
                flat = more if flat.size == 0 else flat + more
                held = 0
        length = np.sqrt(np.dot(b, b))
        b_bar = np.zeros(n)
        if length != 0.0:
            add_multiple(b_bar, 1.0 / length, r)
        return b_bar, flat

    return backward


def jax_forward(matmat, steps, b, parameters):
    """As `build_forward`, over rows that are zero until they are reached."""
    length = jnp.sqrt(b @ b)
    Q = jnp.zeros((steps + 1, b.size)).at[0].set(_ratio(b, length))

    def step(j, state):
        Q, alpha, beta, scale = state
        w = matmat(Q[j][:, None], *parameters)[:, 0]
        a = Q[j] @ w
        for _ in range(2):
            h = Q @ w
            w = w - Q.T @ h
        length = jnp.sqrt(w @ w)
        scale = jnp.maximum(scale, jnp.abs(a) + length)
        length = jnp.where(length <= BREAKDOWN * scale, 0.0, length)
        Q = Q.at[j + 1].set(_ratio(w, length))
        return Q, alpha.at[j].set(a), beta.at[j].set(length), scale

    state = (Q, jnp.zeros(steps), jnp.zeros(steps), 0.0)
    return jax.lax.fori_loop(0, steps, step, state)[:3]


def jax_backward(matmat, vjp, chunk, Q, alpha, beta, b, Q_bar, alpha_bar, beta_bar, parameters):
    """As `build_backward`; the parameters' gradients come last, from all multipliers."""
    steps, with_basis = alpha.size, Q_bar.size > 0
    if not with_basis:
        bars = jnp.stack([alpha_bar, beta_bar])
        sizes = jnp.abs(bars)
        alpha_bar, beta_bar = jnp.where(sizes < NEGLIGIBLE * sizes.max(), 0.0, bars)
    changes = beta * (alpha_bar - jnp.append(alpha_bar[1:], 0.0))
    places = jnp.arange(steps + 1)

    def projected(r, j):
        return r - Q.T @ jnp.where(places <= j, Q @ r, 0.0)

    def row(j, multiplier, ahead):
        """r_j of a step j < P, without its components along q_0, ..., q_j."""
        r = matmat(multiplier[:, None], *parameters)[:, 0] - alpha[j] * multiplier - beta[j] * ahead
        r = r + changes[j] * Q[j + 1]
        if with_basis:
            r = r + Q_bar[j] - Q.T @ jnp.where(places > j, Q_bar @ Q[j], 0.0)
        return projected(r, j)

    def before(r, j):
        """lambda_{j-1} from r_j."""
        new = _ratio(r, beta[j - 1]) + beta_bar[j - 1] * Q[j]
        return new + alpha_bar[j - 1] * Q[j - 1]

    def step(i, state):
        W, multiplier, ahead = state
        j = steps - 1 - i
        W = W.at[j].set(multiplier)
        return W, before(row(j, multiplier, ahead), j), multiplier

    last = Q_bar[steps] if with_basis else jnp.zeros(b.size)
    state = jnp.zeros((steps, b.size)), before(projected(last, steps), steps), jnp.zeros(b.size)
    W, multiplier, ahead = jax.lax.fori_loop(0, steps - 1, step, state)
    W = W.at[0].set(multiplier)
    b_bar = _ratio(row(0, multiplier, ahead), jnp.sqrt(b @ b))
    missing = -steps % chunk
    V, W = (jnp.pad(a, ((0, missing), (0, 0))).reshape((-1, chunk, b.size)) for a in (Q[:steps], W))
    flat = jax.lax.map(lambda pair: vjp(pair[0].T, pair[1].T, *parameters), (V, W))
    return b_bar, flat.sum(axis=0)


def _ratio(vector, length):
    """``vector / length``, or zero where the length is."""
    return jnp.where(length == 0.0, 0.0, vector / jnp.where(length == 0.0, 1.0, length))
