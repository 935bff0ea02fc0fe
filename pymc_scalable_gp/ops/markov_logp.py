"""Log density of a sum of Markov processes under noise by the Kalman filter, and its gradient."""

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.mode import optdb
from pytensor.graph.rewriting.basic import in2out, node_rewriter

from pymc_scalable_gp.ops import _markov_jax as in_jax
from pymc_scalable_gp.ops._elementwise import fill_from
from pymc_scalable_gp.ops._jax import jax_form
from pymc_scalable_gp.ops._markov_adjoint import Slopes, block_back
from pymc_scalable_gp.ops._markov_blocks import ROWS, run
from pymc_scalable_gp.ops._markov_op import MarkovOp, recursion
from pymc_scalable_gp.ops._markov_single import single_logp, single_slopes
from pymc_scalable_gp.ops._markov_steps import process, states
from pymc_scalable_gp.ops.markov_columns import MarkovSolve

# Numbers of all blocks' covariances up to which they are kept for the adjoint.
KEPT = 2**22


class MarkovLogp(MarkovOp):
    """Log density: see `markov_logp`."""

    gufunc_signature = "(n),(f),(k),(n,k),(n),(n)->()"

    def pullback(self, inputs, outputs, cotangents):
        """The cotangent times `MarkovSlopes`."""
        _, *found = MarkovSlopes(*self.options())(*inputs)
        return [cotangents[0] * slope for slope in found]


class MarkovSlopes(MarkovOp):
    """Log density, and its gradient in all inputs."""

    gufunc_signature = "(n),(f),(k),(n,k),(n),(n)->(),(n),(f),(k),(n,k),(n),(n)"


def markov_logp(dt, rates, variances, features, noise, residual, orders, counts, sizes):
    r"""Log density of ``residual`` (n,) under ``N(0, K + D)``, K that of a sum of Markov processes.

    .. math:: K_{il} = \sum_j \Bigl(\sum_{k \in j} v_k g_{ik} g_{lk}\Bigr)
              \prod_{f \in j} k_f(r_f |t_i - t_l|), \qquad t_i = t_{i-1} + \mathrm{dt}_i

    for groups j of features and factors, with ``k_f`` the Matern kernels of smoothness 1/2, 3/2 and 5/2 as
    functions of distances times the rate: ``exp(-u)``, ``(1 + u) exp(-u)``, ``(1 + u + u^2 / 3) exp(-u)``.

    Parameters
    ----------
    dt : tensor, shape (n,)
        Steps from row to row, none negative; the first does not count.
    rates : tensor, shape (f,)
        Rates of all factors, group after group.
    variances : tensor, shape (k,)
    features : tensor, shape (n, k)
    noise, residual : tensors, shape (n,)
    orders : sequence of int
        Order 0, 1 or 2 of each factor's Matern kernel (smoothness less 1/2), or -1 for a constant, which
        is a group of its own.
    counts, sizes : sequences of int
        Number of factors and of features of each group.

    Returns
    -------
    scalar tensor
        NaN where the covariance is not positive definite. Differentiable once in all arguments.

    Raises
    ------
    ValueError
        If `orders`, `counts` and `sizes` do not fit together.

    Notes
    -----
    With s states (a Matern process has order + 1, a product as many as the product of these, a group as
    many for each of its features) O(n s^2) time, by products of matrices for 16 rows at a time. The
    gradient costs about four times as much, and keeps the covariances (s, s) before each of these blocks
    or, where they are more than 2^22 numbers, before some and then those between two such. Features whose
    ``v_k sum_i g_ik^2 / D_i`` is below 1e-11, which bounds what one adds to the log determinant, are left
    out, and have no gradient (under JAX they stay).

    References
    ----------
    .. [1] Särkkä, S. and Solin, A. (2019). Applied Stochastic Differential Equations, chapter 12.
       https://doi.org/10.1017/9781108186735

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> import pymc_scalable_gp as sgp
    >>> dt, ones, e = np.array([0.0, 0.5, 1.0]), np.ones(3), np.array([0.5, -0.5, 1.0])
    >>> logp = sgp.ops.markov_logp(dt, [2.0], [1.0], ones[:, None], ones, e, [0], [1], [1])
    >>> print(logp.eval().round(4))
    -4.1947
    >>> t = dt.cumsum()
    >>> K = np.exp(-2.0 * abs(t[:, None] - t)) + np.eye(3)
    >>> print(stats.multivariate_normal(cov=K).logpdf(e).round(4))
    -4.1947
    """
    inputs = (dt, rates, variances, features, noise, residual)
    return MarkovLogp(orders, counts, sizes)(*(pt.as_tensor(x) for x in inputs))


@recursion(MarkovLogp, single_logp)
def _logp(dt, rates, variances, features, noise, residual, orders, counts, sizes):
    p = process(rates, variances, features, noise, orders, counts, sizes)
    s = states(p)
    m, C = np.zeros(s), np.zeros((s, s))
    nothing = np.empty((0, s)), np.empty((0, s, s))
    logp = run(p, dt, noise, residual, 0, len(dt), m, C, nothing[0], nothing[1], 1)
    return np.asarray(logp if np.isfinite(logp) else np.nan)


@recursion(MarkovSlopes, single_slopes)
def _slopes(dt, rates, variances, features, noise, residual, orders, counts, sizes):
    n = len(dt)
    p = process(rates, variances, features, noise, orders, counts, sizes)
    s, kept, blocks = states(p), p.kept, (n + ROWS - 1) // ROWS
    step = blocks if blocks * s * s <= KEPT else int(np.ceil(np.sqrt(blocks)))
    out = Slopes(
        np.zeros(n), np.zeros(len(rates)), np.zeros(len(kept)), np.zeros((n, len(kept))),
        np.zeros(n), np.zeros(n),
    )  # fmt: skip
    m, C = np.zeros(s), np.zeros((s, s))
    ms, Cs = np.empty((min(step, blocks), s)), np.empty((min(step, blocks), s, s))
    heads = (blocks + step - 1) // step if step < blocks else 0
    head_m, head_C = np.empty((heads, s)), np.empty((heads, s, s))
    if heads:
        logp = run(p, dt, noise, residual, 0, n, m, C, head_m, head_C, step)
    else:
        logp = run(p, dt, noise, residual, 0, n, m, C, ms, Cs, 1)
    if np.isfinite(logp):
        m[:], C[:] = 0.0, 0.0
        for first in range(step * (heads - 1) if heads else 0, -1, -max(step, 1)):
            last = min(first + step, blocks)
            if heads:
                before, around = head_m[first // step].copy(), head_C[first // step].copy()
                rows = first * ROWS, min(last * ROWS, n)
                run(p, dt, noise, residual, rows[0], rows[1], before, around, ms, Cs, 1)
            for k in range(last - 1, first - 1, -1):
                i, place = k * ROWS, k - first
                b = min(ROWS, n - i)
                block_back(p, i, b, dt, noise, residual, ms[place], Cs[place], m, C, out)
    else:
        logp = np.nan
        for slope in (out.dt, out.rates, out.noise, out.e, out.V):
            slope[:] = np.nan
        out.G[:] = np.nan
    V_bar, G_bar = np.zeros(len(variances)), np.zeros(features.shape)
    for k, place in enumerate(kept):
        V_bar[place] = out.V[k]
        fill_from(G_bar[:, place], out.G[:, k])
    return np.asarray(logp), out.dt, out.rates, V_bar, G_bar, out.noise, out.e


jax_form(MarkovLogp)(in_jax.logp)
jax_form(MarkovSlopes, differentiable=False)(in_jax.slopes)


@node_rewriter([MarkovSlopes])
def solve_alone(fgraph, node):
    """Where the slope in the residual is all that is used, a solution costs a quarter."""
    *others, last = node.outputs
    if not fgraph.clients[last] or any(fgraph.clients[out] for out in others):
        return None
    *of_process, residual = node.inputs
    solved = MarkovSolve(*node.op.options())(*of_process, residual[:, None])
    return {last: -solved[:, 0]}


@node_rewriter([MarkovLogp])
def one_pass(fgraph, node):
    """Take the density from the Op that computes its gradient, where there is one."""
    for client, _ in fgraph.clients[node.inputs[0]]:
        if isinstance(client.op, MarkovSlopes) and client.op.options() == node.op.options():
            if client.inputs == node.inputs:
                return [client.outputs[0]]
    return None


optdb.register("markov_solve_alone", in2out(solve_alone), "fast_run", "fast_compile", position=1.95)
# After equal nodes are merged.
optdb.register("markov_one_pass", in2out(one_pass), "fast_run", "fast_compile", position=1.96)
