"""Growth curves of children: many short irregular series at once, and clusters of them, with SKIP.

python examples/growth.py [--parts tasks,clusters] [--out FOLDER]

Simulates children of three kinds, each measured 5 to 30 times. "tasks": a curve that all share and one
of each child, as tasks of one SKIPMarginal; the later visits of 20 children are predicted from their
first ones, with more and more other children to learn from, next to a GP of each child alone and to the
exact coregionalised pm.gp.Marginal. "clusters": which kind each child is, by Gibbs steps on categories
together with NUTS on curves and hyperparameters; and how sure a new child's kind is as visits come in.
About three minutes.
"""

import argparse
import time
from pathlib import Path

import arviz as az
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from reporting import chains, coverage
from scipy.stats import multivariate_normal

import pymc_scalable_gp as sgp

KINDS, NOISE, FIRST = 3, 0.1, 4


def curve(kind, t):
    """Mean curves of the three kinds, standardised heights."""
    return np.select(
        [kind == 0, kind == 1, kind == 2], [2.0 * t - 1.0, 1.2 * np.tanh(4 * (t - 0.3)), 2.2 * t**3 - 1.0]
    )


def simulate(children, rng):
    """Rows (time, child), measurements, and the kind of each child."""
    kind = rng.integers(0, KINDS, children)
    visits = rng.integers(5, 31, children)
    task = np.repeat(np.arange(children), visits)
    t = np.concatenate([np.sort(rng.uniform(0, 1, k)) for k in visits])
    tilt, bend = 0.12 * rng.standard_normal((2, children))
    own = tilt[task] * (t - 0.5) + bend[task] * np.sin(3 * t + task)
    y = curve(kind[task], t) + own + NOISE * rng.standard_normal(len(t))
    return np.column_stack([t, task]), y, kind


def order_of_visits(task):
    """0, 1, 2, ... within each child."""
    starts = np.r_[0, np.flatnonzero(np.diff(task)) + 1]
    return np.arange(len(task)) - np.repeat(starts, np.diff(np.r_[starts, len(task)]))


def shared_and_own(children):
    """Model of a shared curve and one of each child: lengthscale, the tasks' W and kappa, noise."""
    ell = pm.InverseGamma("ell", 5, 2)
    both, own = pm.HalfNormal("shared", 1), pm.HalfNormal("own", 1)
    sigma = pm.HalfNormal("sigma", 0.5)
    W, kappa = both * pt.ones((children, 1)), own**2 * pt.ones(children)
    return ell, W, kappa, sigma


def seconds_of(model):
    """Seconds of one density and gradient."""
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    x = np.zeros(4)
    function(x)
    start = time.perf_counter()
    for _ in range(5):
        function(x)
    return (time.perf_counter() - start) / 5


def tasks(args, rng):
    """Error on the later visits of 20 children, by the number of others."""
    print(f"{'children':>9}{'rows':>6}{'RMSE alone':>12}{'SKIP':>8}{'exact':>8}"
          f"{'gradient s: SKIP':>18}{'exact':>8}{'ratio':>7}")  # fmt: skip
    X, y, _ = simulate(20 + max(args.children), rng)
    for others in args.children:
        keep = X[:, 1] < 20 + others
        Z, target = X[keep], y[keep]
        later = (Z[:, 1] < 20) & (order_of_visits(Z[:, 1]) >= FIRST)
        children = 20 + others
        with pm.Model() as model:
            ell, W, kappa, sigma = shared_and_own(children)
            cov = pm.gp.cov.ExpQuad(2, ls=ell, active_dims=[0])
            gp = sgp.SKIPMarginal(cov_func=cov, rank=8, task_dim=1, task_cov=W, task_var=kappa)
            gp.marginal_likelihood("y", X=Z[~later], y=target[~later], sigma=sigma)
            best = pm.find_MAP(progressbar=False, jitter=False, return_inferencedata=True)
        best = best["posterior"].to_dataset().isel(chain=0, draw=0)
        point = {name: value.values for name, value in best.items()}
        mean, _ = gp.predict(Z[later], point, diag=True, model=model)
        ours = np.sqrt(np.mean((mean - target[later]) ** 2))
        spent, exact, theirs = seconds_of(model), np.nan, np.nan
        if (~later).sum() <= args.exact:
            with pm.Model() as peer:
                ell, W, kappa, sigma = shared_and_own(children)
                cov = pm.gp.cov.ExpQuad(2, ls=ell, active_dims=[0]) * pm.gp.cov.Coregion(
                    2, W=W, kappa=kappa, active_dims=[1]
                )
                reference = pm.gp.Marginal(cov_func=cov)
                reference.marginal_likelihood("y", X=Z[~later], y=target[~later], sigma=sigma)
            theirs = seconds_of(peer)
            found, _ = reference.predict(Z[later], point, diag=True, model=peer)
            exact = np.sqrt(np.mean((found - target[later]) ** 2))
        alone = np.concatenate([
            single(Z, target, later, child, point) for child in range(20)
        ])  # fmt: skip
        print(f"{children:>9}{(~later).sum():>6}{np.sqrt(np.mean(alone**2)):>12.3f}{ours:>8.3f}"
              f"{exact:>8.3f}{spent:>18.5f}{theirs:>8.3f}{theirs / spent:>7.0f}", flush=True)  # fmt: skip
    sample_tasks(args, gp, model, Z[later], target[later])


def sample_tasks(args, gp, model, new, truth):
    """The last of these models by NUTS: whether it converged, and what its predictions cover."""
    start = time.perf_counter()
    with model:
        idata = pm.sample(args.draws, tune=args.draws, chains=2, random_seed=1, progressbar=False)
        spent = time.perf_counter() - start
        found = gp.predict_posterior(new, idata, num_samples=50, pred_noise=True, random_seed=1,
                                     progressbar=False)  # fmt: skip
    print(az.summary(idata, kind="stats").to_string())
    chains(idata)
    error = truth - found["mean"].values
    print(f"NUTS 2 x ({args.draws} + {args.draws}) {spent:.0f} s; RMSE {np.sqrt(np.mean(error**2)):.3f}")
    coverage(error, found["sd"], "later visits")


def single(Z, target, later, child, point):
    """Errors of an exact GP of one child alone, at the same hyperparameters."""
    here = Z[:, 1] == child
    x, new = Z[here & ~later, 0], Z[here & later, 0]

    def kernel(a, b):
        scale = point["shared"] ** 2 + point["own"] ** 2
        return scale * np.exp(-0.5 * (a[:, None] - b) ** 2 / point["ell"] ** 2)

    gain = np.linalg.solve(kernel(x, x) + point["sigma"] ** 2 * np.eye(len(x)), kernel(x, new))
    return gain.T @ target[here & ~later] - target[here & later]


def clusters(args, rng):
    """Kinds of the children by Gibbs, curves and hyperparameters by NUTS."""
    X, y, kind = simulate(args.cluster_children, rng)
    task, children = X[:, 1].astype(int), args.cluster_children
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 5, 2)
        cov = pm.gp.cov.ExpQuad(1, ls=ell)
        gp = sgp.SKIPLatent(cov_func=cov, rank=6)
        phi = gp.features(X[:, :1])
        curves = pm.Normal("curves", 0, 1, shape=(gp.rank, KINDS))
        own_sd, sigma = pm.HalfNormal("own_sd", 0.5), pm.HalfNormal("sigma", 0.5)
        height = [y[task == i][-1] for i in range(children)]
        first = np.argsort(np.argsort(height)) * KINDS // children
        kinds = np.full(KINDS, 1 / KINDS)
        assigned = pm.Categorical("kind", kinds, shape=children, initval=first)
        density = collapsed(phi, curves, own_sd, sigma, y, np.eye(children)[:, task])
        pm.Potential("y", density[np.arange(children), assigned].sum())
        start = time.perf_counter()
        idata = pm.sample(
            args.draws, tune=args.draws, chains=1, random_seed=2, progressbar=False,
            step=[pm.CategoricalGibbsMetropolis([assigned])], compute_convergence_checks=False,
        )  # fmt: skip
        seconds = time.perf_counter() - start
    posterior = idata["posterior"].to_dataset().isel(chain=0)
    share = np.stack([(posterior["kind"] == k).mean("draw").values for k in range(KINDS)])
    table = np.array([[np.mean(share[k][kind == j]) for j in range(KINDS)] for k in range(KINDS)])
    name = table.argmax(axis=0)  # label of each true kind
    right = np.mean(share.argmax(axis=0) == name[kind])
    print(f"\nclusters: {children} children, {len(y)} visits, Gibbs and NUTS {seconds:.0f} s; "
          f"{right:.0%} of the children in their own cluster")  # fmt: skip
    sharpen(args, rng, gp, model, posterior, name)


def collapsed(phi, curves, own_sd, sigma, y, member):
    """Log density (children, kinds) of each child's visits, its own curve integrated out.

    With ``A = phi' phi`` over a child's rows and ``e = y - phi c_k``, by the matrix inversion lemma:
    ``-(e'e - v e'phi (s I + v A)^-1 phi'e) / 2 s - (n log s + log|I + v A / s|) / 2``, s and v the
    variances of noise and own curve.
    """
    s, v, r = sigma**2, own_sd**2, phi.shape[1]
    count = member.shape[0]
    A = (member @ (phi[:, :, None] * phi[:, None, :]).reshape((-1, r * r))).reshape((count, r, r))
    error = y[:, None] - phi @ curves  # (rows, kinds)
    square = member @ error**2
    b = [member @ (phi * error[:, k][:, None]) for k in range(KINDS)]
    lower = pt.linalg.cholesky(pt.eye(r) + v / s * A)
    logdet = 2.0 * pt.log(pt.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    b = pt.stack(b, axis=2)  # (children, r, kinds)
    white = pt.linalg.solve_triangular(lower, b, lower=True)
    quadratic = square / s - v / s**2 * (white**2).sum(axis=1)
    rows = member.sum(axis=1)
    return -0.5 * (quadratic + (rows * pt.log(2 * np.pi * s) + logdet)[:, None])


def sharpen(args, rng, gp, model, posterior, name):
    """Probability of a new child's true kind against its number of visits."""
    counts = (1, 2, 4, 8, 16)
    found = np.zeros((len(counts), KINDS))
    for kind in range(KINDS):
        t = np.sort(rng.uniform(0, 1, 16))
        y = curve(np.full(16, kind), t) + NOISE * rng.standard_normal(16)
        order = rng.permutation(16)
        for row, k in enumerate(counts):
            rows = order[:k]
            found[row, kind] = kind_of(gp, model, posterior, t[rows], y[rows])[name[kind]]
    print("probability of a new child's own kind, by visits: " + ", ".join(
        f"{k}: {p:.2f}" for k, p in zip(counts, found.mean(axis=1), strict=True)
    ))  # fmt: skip
    figure, axis = plt.subplots(figsize=(5, 3), constrained_layout=True)
    for kind, style in enumerate(("o-", "s--", "^:")):
        axis.plot(counts, found[:, kind], style, label=f"kind {kind + 1}")
    axis.set(xscale="log", xlabel="visits", ylabel="probability of the own kind", ylim=(0, 1.04))
    axis.set_xticks(counts, [str(k) for k in counts])
    axis.minorticks_off()
    figure.legend(loc="outside right center", frameon=False)
    figure.savefig(args.out / "growth.png", dpi=110)


def kind_of(gp, model, posterior, t, y):
    """Posterior probabilities (KINDS,) of a child's kind, its own curve integrated out."""
    weights, size = np.zeros(KINDS), posterior.sizes["draw"]
    with model:
        symbolic = gp.features(t[:, None])
    value = model.rvs_to_values[model["ell"]]
    features = model.compile_fn(
        model.replace_rvs_by_values([symbolic])[0], inputs=[value], on_unused_input="ignore",
        mode="FAST_COMPILE",
    )  # fmt: skip
    draws = range(0, size, max(1, size // 40))
    logs = np.zeros((len(draws), KINDS))
    for row, s in enumerate(draws):
        draw = posterior.isel(draw=s)
        phi = features({value.name: np.log(float(draw["ell"]))})
        cov = float(draw["own_sd"]) ** 2 * phi @ phi.T + float(draw["sigma"]) ** 2 * np.eye(len(t))
        for k in range(KINDS):
            logs[row, k] = multivariate_normal(phi @ draw["curves"].values[:, k], cov).logpdf(y)
    for row in logs:
        share = np.exp(row - row.max())
        weights += share / share.sum()
    return weights / len(logs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--parts", default="tasks,clusters")
    add("--children", type=int, nargs="+", default=[5, 20, 60], help="others to learn from")
    add("--exact", type=int, default=1500, help="most rows for the exact GP")
    add("--cluster-children", type=int, default=45)
    add("--draws", type=int, default=200)
    add("--out", type=Path, default=Path("."), help="folder of the picture")
    args = parser.parse_args()
    for part in args.parts.split(","):
        {"tasks": tasks, "clusters": clusters}[part](args, np.random.default_rng(0))


if __name__ == "__main__":
    main()
