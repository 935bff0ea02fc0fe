"""The Ops on sums of Markov processes in JAX, by scans over the rows."""

from math import factorial
from typing import Any, NamedTuple

from pymc_scalable_gp.ops._jax import jax, jnp
from pymc_scalable_gp.ops._lowrank_terms import LOG_2PI
from pymc_scalable_gp.ops._markov_steps import DEPENDENT, DRIVE, STATIC


class Steps(NamedTuple):
    """Transitions (n, s, s), observations (n, s), and the stationary covariance (s, s)."""

    A: Any
    H: Any
    P: Any


def _matern(order, u):
    """Transitions (n, q, q) and the stationary covariance (q, q)."""
    if order == STATIC:
        return jnp.ones((len(u), 1, 1)), jnp.ones((1, 1))
    places = range(order + 1)

    def transition(a, b):
        if b < a:
            return jnp.zeros_like(u)
        return jnp.exp(-u) * u ** (b - a) / factorial(b - a)

    def prior(a, b):
        up, to = order - a, order - b
        scale = DRIVE[order] / (factorial(up) * factorial(to))
        return scale * factorial(up + to) / 2.0 ** (up + to + 1)

    A = jnp.stack([jnp.stack([transition(a, b) for b in places], -1) for a in places], -2)
    return A, jnp.asarray([[prior(a, b) for b in places] for a in places])


def _kron(A, B):
    """Kronecker products of the last two axes."""
    found = jnp.einsum("...ab,...cd->...acbd", A, B)
    q, r = A.shape[-1], B.shape[-1]
    return found.reshape((*found.shape[:-4], q * r, q * r))


def _steps(dt, rates, V, G, orders, counts, sizes):
    """All rows' steps, group after group; the first leads from nothing to the stationary state."""
    n, parts, factor, feature = len(dt), [], 0, 0
    for count, size in zip(counts, sizes, strict=True):
        own = slice(feature, feature + size)
        A, P = jnp.ones((n, 1, 1)), jnp.ones((1, 1))
        for f in range(factor, factor + count):
            A, P = map(_kron, (A, P), _matern(orders[f], rates[f] * dt))
        rest = jnp.zeros((n, (A.shape[-1] - 1) * size))
        H = jnp.hstack([G[:, own], rest])
        parts.append((_kron(A, jnp.eye(size)), H, _kron(P, jnp.diag(V[own]))))
        factor, feature = factor + count, feature + size
    width, at = sum(len(P) for _, _, P in parts), 0
    A, P = jnp.zeros((n, width, width)), jnp.zeros((width, width))
    for A_, _, P_ in parts:
        place = slice(at, at + len(P_))
        A, P, at = A.at[:, place, place].set(A_), P.at[place, place].set(P_), at + len(P_)
    return Steps(A.at[0].set(0.0), jnp.hstack([H for _, H, _ in parts]), P)


def _filter(steps, noise, B):
    """Gains (n, s), variances (n,), residuals and expectations (n, c) of columns B (n, c)."""
    P = steps.P

    def step(state, row):
        M, C = state
        A, h, d, b = row
        M, C = A @ M, P + A @ (C - P) @ A.T
        v, unseen = C @ h, jnp.isinf(d)
        S = h @ v + jnp.where(unseen, 0.0, d)
        safe = jnp.where(unseen, 1.0, S)
        expected = h @ M
        z = jnp.where(unseen, 0.0, b - expected)
        gain = jnp.where(unseen, 0.0, v / safe)
        return (M + jnp.outer(gain, z), C - jnp.outer(gain, v)), (v, S, z, expected)

    start = jnp.zeros((len(P), B.shape[1])), P
    return jax.lax.scan(step, start, (steps.A, steps.H, noise, B))[1]


def logp(dt, rates, V, G, noise, e, orders, counts, sizes):
    """As `markov_logp`."""
    if not len(dt):
        return jnp.asarray(0.0)
    steps = _steps(dt, rates, V, G, orders, counts, sizes)
    _, S, Z, _ = _filter(steps, noise, e[:, None])
    total = LOG_2PI * len(e) + jnp.log(S).sum() + (Z[:, 0] ** 2 / S).sum()
    return jnp.where((S > 0.0).all() & jnp.isfinite(noise).all(), -0.5 * total, jnp.nan)


def slopes(dt, rates, V, G, noise, e, orders, counts, sizes):
    """As `MarkovSlopes`, by automatic differentiation."""
    value, found = jax.value_and_grad(logp, argnums=tuple(range(6)))(
        dt, rates, V, G, noise, e, orders, counts, sizes
    )
    return value, *found


def _backward(steps, v, S, noise, Z):
    """Adjoint states (n, s, c) and (n, s, s) that belong to each row, and solutions (n, c)."""
    s = steps.H.shape[1]

    def step(state, row):
        X, N, A_next = state
        A, h, v, S, d, z = row
        X, N = A_next.T @ X, A_next.T @ N @ A_next
        unseen, w = jnp.isinf(d), N @ v
        alpha = jnp.where(unseen, 0.0, (z - v @ X) / jnp.where(unseen, 1.0, S))
        own = (1.0 + v @ w / S) / S * jnp.outer(h, h) - (jnp.outer(h, w) + jnp.outer(w, h)) / S
        X, N = X + jnp.outer(h, alpha), N + jnp.where(unseen, 0.0, own)
        return (X, N, A), (X, N, alpha)

    start = jnp.zeros((s, Z.shape[1])), jnp.zeros((s, s)), jnp.zeros((s, s))
    rows = steps.A, steps.H, v, S, noise, Z
    return jax.lax.scan(step, start, rows, reverse=True)[1]


def solve(dt, rates, V, G, noise, B, orders, counts, sizes):
    """As `markov_solve`."""
    if not len(dt):
        return B
    steps = _steps(dt, rates, V, G, orders, counts, sizes)
    v, S, Z, _ = _filter(steps, noise, B)
    alpha = _backward(steps, v, S, noise, Z)[2]
    return jnp.where((S > 0.0).all(), alpha, jnp.nan)


def smooth(dt, rates, V, G, noise, B, orders, counts, sizes):
    """As `markov_smooth`."""
    if not len(dt):
        return B, noise
    steps = _steps(dt, rates, V, G, orders, counts, sizes)
    v, S, Z, expected = _filter(steps, noise, B)
    X, N, _ = _backward(steps, v, S, noise, Z)
    mean = expected + jnp.einsum("ns,nsc->nc", v, X)
    var = jnp.einsum("ns,ns->n", steps.H, v) - jnp.einsum("ns,nst,nt->n", v, N, v)
    good = (jnp.isinf(noise) | (S > 0.0)).all()
    return jnp.where(good, mean, jnp.nan), jnp.where(good, jnp.maximum(var, 0.0), jnp.nan)


def color(dt, rates, V, G, noise, W, orders, counts, sizes):
    """As `markov_color`."""
    if not len(dt):
        return W
    steps = _steps(dt, rates, V, G, orders, counts, sizes)
    P, prior = steps.P, noise + (G**2) @ V

    def step(state, row):
        M, C = state
        A, h, d, w, p = row
        M, C = A @ M, P + A @ (C - P) @ A.T
        v = C @ h
        S = h @ v + d
        used = S > DEPENDENT * p
        root = jnp.sqrt(jnp.where(used, S, 1.0))
        gain = jnp.where(used, v / root, 0.0)
        out = h @ M + jnp.where(used, root, 0.0) * w
        return (M + jnp.outer(gain, w), C - jnp.outer(gain, gain)), out

    start = jnp.zeros((len(P), W.shape[1])), P
    out = jax.lax.scan(step, start, (steps.A, steps.H, noise, W, prior))[1]
    return jnp.where((prior >= 0.0).all(), out, jnp.nan)
