"""The recurrences of `lanczos` and of its adjoint, in one source for Python and Numba, and in JAX.

Basis vectors are rows, so that each is contiguous. ``matmat(V, *parameters)`` multiplies by the operator;
``vjp(V, G, *parameters)`` is the flat gradient of ``sum(G * (A V))`` in the parameters.
"""

import numpy as np

from pymc_scalable_gp.ops._elementwise import add, add_multiple, fill_from, multiply_by, subtract
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
    """``(Q, alpha, beta, b, Q_bar, alpha_bar, beta_bar, parameters) -> b_bar, flat parameter gradient``.

    The forward step is ``w = (I - Q Q') A q_j``, ``alpha_j = q_j' A q_j``, ``beta_j = |w|``,
    ``q_{j+1} = w / beta_j``; each is transposed, last first. What flows back into earlier q through the
    projection is ``A q_j = beta_{j-1} q_{j-1} + alpha_j q_j + beta_j q_{j+1}`` times coefficients, so
    that a small matrix C of coefficients stands for the n x P cotangent. An empty `Q_bar` is zero.
    """

    @jit
    def backward(Q, alpha, beta, b, Q_bar, alpha_bar, beta_bar, parameters):
        steps, n = alpha.size, b.size
        if Q_bar.size == 0:
            alpha_bar, beta_bar = alpha_bar.copy(), beta_bar.copy()
            least = NEGLIGIBLE * max(np.abs(alpha_bar).max(), np.abs(beta_bar).max())
            for j in range(steps):
                alpha_bar[j] = 0.0 if abs(alpha_bar[j]) < least else alpha_bar[j]
                beta_bar[j] = 0.0 if abs(beta_bar[j]) < least else beta_bar[j]
        C = np.zeros((steps + 1, steps + 1))
        flat = np.zeros(0)
        V, W = np.zeros((chunk, n)), np.zeros((chunk, n))
        held = 0
        # Cotangents of q_{j+1} (ahead) and q_j (here), without the part that C stands for.
        ahead, here = np.zeros(n), np.zeros(n)
        for j in range(steps - 1, -1, -1):
            w_bar = np.zeros(n)
            if beta[j] != 0.0:
                x = np.dot(Q.T, C[:, j + 1])
                add(x, ahead)
                if Q_bar.size > 0:
                    add(x, Q_bar[j + 1])
                fill_from(w_bar, x)
                add_multiple(w_bar, -np.dot(Q[j + 1], x), Q[j + 1])
                multiply_by(w_bar, 1.0 / beta[j])
                add_multiple(w_bar, beta_bar[j], Q[j + 1])
            h_bar = np.dot(Q[: j + 1], w_bar)
            multiply_by(h_bar, -1.0)
            h_bar[j] += alpha_bar[j]
            total = np.dot(Q[: j + 1].T, h_bar)
            add(total, w_bar)
            if j > 0:
                add_multiple(C[j - 1, : j + 1], beta[j - 1], h_bar)
            add_multiple(C[j, : j + 1], alpha[j], h_bar)
            add_multiple(C[j + 1, : j + 1], beta[j], h_bar)
            add(here, matmat(total.copy().reshape((-1, 1)), *parameters)[:, 0])
            add_multiple(here, -alpha[j], w_bar)
            fill_from(V[held], Q[j])
            fill_from(W[held], total)
            held += 1
            if held == chunk or j == 0:
                W[held:] = 0.0
                more = vjp(V.T.copy(), W.T.copy(), *parameters)
                flat = more if flat.size == 0 else flat + more
                held = 0
            ahead, here = here, np.zeros(n)
            if j > 0:
                add_multiple(here, -beta[j - 1], w_bar)
        x = np.dot(Q.T, C[:, 0])
        add(x, ahead)
        if Q_bar.size > 0:
            add(x, Q_bar[0])
        length = np.sqrt(np.dot(b, b))
        b_bar = np.zeros(n)
        if length != 0.0:
            fill_from(b_bar, x)
            add_multiple(b_bar, -np.dot(Q[0], x), Q[0])
            multiply_by(b_bar, 1.0 / length)
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
    """As `build_backward`; the parameters' gradients come last, from all W."""
    steps = alpha.size
    C = jnp.zeros((steps + 1, steps + 1))
    previous = jnp.concatenate([jnp.zeros(1), beta])  # beta_{j-1} at j
    if Q_bar.size == 0:
        Q_bar = jnp.zeros_like(Q)
        bars = jnp.stack([alpha_bar, beta_bar])
        sizes = jnp.abs(bars)
        alpha_bar, beta_bar = jnp.where(sizes < NEGLIGIBLE * sizes.max(), 0.0, bars)

    def step(i, state):
        C, W, ahead, here = state
        j = steps - 1 - i
        x = ahead + Q.T @ C[:, j + 1] + Q_bar[j + 1]
        w_bar = _ratio(x - Q[j + 1] * (Q[j + 1] @ x), beta[j]) + beta_bar[j] * Q[j + 1]
        reached = jnp.arange(steps + 1) <= j
        h_bar = jnp.where(reached, -(Q @ w_bar), 0.0).at[j].add(alpha_bar[j])
        total = w_bar + Q.T @ h_bar
        C = C.at[j].add(alpha[j] * h_bar).at[j + 1].add(beta[j] * h_bar)
        C = C.at[jnp.maximum(j - 1, 0)].add(previous[j] * h_bar)
        here = here + matmat(total[:, None], *parameters)[:, 0] - alpha[j] * w_bar
        return C, W.at[j].set(total), here, -previous[j] * w_bar

    state = (C, jnp.zeros((steps, b.size)), jnp.zeros(b.size), jnp.zeros(b.size))
    C, W, ahead, _ = jax.lax.fori_loop(0, steps, step, state)
    x = ahead + Q.T @ C[:, 0] + Q_bar[0]
    b_bar = _ratio(x - Q[0] * (Q[0] @ x), jnp.sqrt(b @ b))
    missing = -steps % chunk
    V, W = (jnp.pad(a, ((0, missing), (0, 0))).reshape((-1, chunk, b.size)) for a in (Q[:steps], W))
    flat = jax.lax.map(lambda pair: vjp(pair[0].T, pair[1].T, *parameters), (V, W))
    return b_bar, flat.sum(axis=0)


def _ratio(vector, length):
    """``vector / length``, or zero where the length is."""
    return jnp.where(length == 0.0, 0.0, vector / jnp.where(length == 0.0, 1.0, length))
