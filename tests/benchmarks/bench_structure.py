"""Kernels and grids with structure: complete grids, grids with gaps, functions by group, sums and products.

    python tests/benchmarks/bench_structure.py [--parts grids,gaps,groups,sums,few,compilation] [--quick]

* grids: density and gradient of `KMCGMarginal` on complete grids, and of `pm.gp.MarginalKron`; CPU seconds.
* gaps: 30 x 40 cells of which a fifth are missing, products of two kernels on sides of 3 and 4: how far the
  log density by probes lies from the exact one at six lengthscales and sigmas, in nats.
* groups: density and gradient of `VecchiaMarginal` with 20 points under `sgp.cov.PerGroup`, 1000 groups of
  200 rows with lengthscales of their own, and under one kernel for all these rows; CPU seconds.
* sums: density and gradient of `VecchiaMarginal` with 100 points under one kernel of three inputs, under a
  sum and under products of two; CPU seconds.
* compilation: the first density and gradient of 1, 10 and 1000 groups of 200 rows, less a second one, each
  in a new process with empty caches; wall-clock seconds.
* few: density and gradient of the exact GP beside `VecchiaMarginal` as it comes, and beside `KMCGMarginal`
  by steps and probes on grids with a fifth of the cells missing; CPU seconds.
"""

import time
import warnings

import numpy as np
from _common import arguments, cpu_seconds, fresh_process, hand_back, table

SETTINGS = ((0.15, 0.1), (0.5, 0.1), (0.5, 0.3), (1.5, 0.1), (1.5, 0.3), (1.5, 1.0))


def gradient_of(model):
    """A call of density and gradient, compiled."""
    function = model.compile_fn([model.logp(), model.dlogp()])
    point = model.initial_point(0)
    function(point)
    return lambda: function(point)


def on_grid(pm, sgp, shape, kronecker):
    """A model of a complete grid, with two lengthscales, a scale and a noise."""
    axes = [np.linspace(0.0, 10.0, m) for m in shape]
    rng = np.random.default_rng(0)
    y = np.sin(axes[0])[:, None] * np.cos(axes[1]) + 0.3 * rng.standard_normal(shape)
    matern = pm.gp.cov.Matern52
    with pm.Model() as model:
        l0, l1, eta, sigma = (pm.LogNormal(name) for name in ("l0", "l1", "eta", "sigma"))
        if kronecker:
            gp = pm.gp.MarginalKron(cov_funcs=[eta**2 * matern(1, l0), matern(1, l1)])
            Xs = [axis[:, None] for axis in axes]
            gp.marginal_likelihood("y", Xs=Xs, y=y.ravel(), sigma=sigma)
        else:
            cov = eta**2 * matern(2, l0, active_dims=[0]) * matern(2, l1, active_dims=[1])
            gp = sgp.KMCGMarginal(cov_func=cov)
            gp.marginal_likelihood("y", X=sgp.RegularGrid(axes), y=y, sigma=sigma)
    return model


def grids(pm, sgp, quick):
    """Lines: milliseconds by cells."""
    small = [gradient_of(on_grid(pm, sgp, (30, 40), kron)) for kron in (False, True)]
    own, theirs = cpu_seconds(small, 50)
    found = [["30 x 40", f"{1e3 * own:.2f}", f"{1e3 * theirs:.2f}", f"{own / theirs:.2f}"]]
    if not quick:
        (own,) = cpu_seconds([gradient_of(on_grid(pm, sgp, (1000, 1000), False))], 3)
        found.append(["1000 x 1000", f"{1e3 * own:.0f}", "", ""])
    return found


def kernel(name, x, ell):
    """Matrix (m, m) of one axis."""
    r = np.abs(x[:, None] - x) / ell
    if name == "ExpQuad":
        return np.exp(-0.5 * r**2)
    return (1.0 + np.sqrt(5.0) * r + 5.0 * r**2 / 3.0) * np.exp(-np.sqrt(5.0) * r)


def gaps(pm, sgp, quick):
    """Lines: smallest and largest differences from the exact log density."""
    rng = np.random.default_rng(0)
    mask = rng.random((30, 40)) > 0.2
    grid = sgp.RegularGrid([np.linspace(0.0, 3.0, 30), np.linspace(0.0, 4.0, 40)], mask)
    found = []
    for name in ("Matern52",) if quick else ("Matern52", "ExpQuad"):
        first, second = grid.points.T

        def covariance(ell, sigma, name=name, first=first, second=second):
            K = kernel(name, first, ell) * kernel(name, second, ell)
            return K + sigma**2 * np.eye(grid.n)

        y = np.linalg.cholesky(covariance(0.5, 0.1)) @ rng.standard_normal(grid.n)
        exact = []
        for setting in SETTINGS:
            root = np.linalg.cholesky(covariance(*setting))
            white = np.linalg.solve(root, y)
            logdet = np.log(np.diag(root)).sum()
            exact.append(-0.5 * (white @ white + grid.n * np.log(2.0 * np.pi)) - logdet)
        for steps, probes in ((100, 8), (400, 8), (100, 32)):
            with warnings.catch_warnings(), pm.Model() as model:
                warnings.simplefilter("ignore", UserWarning)  # of what is measured here
                ell, sigma = (pm.Flat(label, initval=1.0) for label in ("ell", "sigma"))
                part = getattr(pm.gp.cov, name)
                cov = part(2, ell, active_dims=[0]) * part(2, ell, active_dims=[1])
                gp = sgp.KMCGMarginal(cov_func=cov, n_iter=steps, probes=probes)
                gp.marginal_likelihood("y", X=grid, y=y, sigma=sigma)
            logp = model.compile_logp(vars=[model["y"]])
            off = [logp({"ell": e, "sigma": s}) - b for (e, s), b in zip(SETTINGS, exact, strict=True)]
            least, most = min(off, key=abs), max(off, key=abs)
            found.append([name, steps, probes, f"{least:+.1f}", f"{most:+.1f}", f"{np.ptp(off):.1f}"])
    return found


def by_groups(pm, sgp, count, rows, common):
    """A model of `rows` rows in so many groups; of none, with one kernel, for 0.

    With a function that is common to all groups, if `common`.
    """
    rng = np.random.default_rng(0)
    x, group = (rng.uniform(0.0, 10.0, rows), np.repeat(np.arange(max(count, 1)), rows // max(count, 1)))
    y = np.sin(x) + 0.3 * rng.standard_normal(rows)
    with pm.Model() as model:
        shape = {"shape": count} if count else {}
        ls, scale = pm.InverseGamma("ls", 3, 3, **shape), pm.HalfNormal("scale", 1, **shape)
        if count:
            cov = sgp.cov.PerGroup(pm.gp.cov.Matern52, 2, ls=ls, scale=scale, group_dim=1)
        else:
            cov = scale**2 * pm.gp.cov.Matern52(2, ls=ls, active_dims=[0])
        if common:
            ell = pm.InverseGamma("common_ls", 3, 3)
            cov += pm.HalfNormal("common", 1) ** 2 * pm.gp.cov.Matern52(2, ls=ell, active_dims=[0])
        gp = sgp.VecchiaMarginal(cov_func=cov, n_inducing=20)
        X = np.column_stack([x, group])
        gp.build(X)
        gp.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1), progressbar=False)
    return model


def groups(pm, sgp, quick):
    """Lines: seconds of a gradient by groups, and over that of one kernel; then with a common function."""
    count, rows = (20, 4000) if quick else (1000, 200_000)
    for common in (False, True):
        models = [by_groups(pm, sgp, number, rows, common) for number in (0, count)]
        one, many = cpu_seconds([gradient_of(model) for model in models], 3)
        shared = ", and a common one" if common else ""
        yield [f"one kernel{shared}", rows, f"{one:.2f}", "1.00"]
        yield [f"{count} groups{shared}", rows, f"{many:.2f}", f"{many / one:.2f}"]


def sums(pm, sgp, quick):
    """Lines: seconds of a gradient by kernel, and over that of one stationary kernel."""
    rng, rows = np.random.default_rng(0), 1000 if quick else 8000
    X = rng.uniform(0.0, 10.0, (rows, 3))
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1] + 0.2 * rng.standard_normal(rows)
    part, calls = pm.gp.cov, {}
    for name, kernel in {
        "one": lambda ls, eta: part.Matern52(3, ls=ls[:3]),
        "a sum": lambda ls, eta: part.Matern52(3, ls=ls[:3]) + eta**2 * part.ExpQuad(3, ls=ls[3:]),
        "a product": lambda ls, eta: (
            part.Matern52(3, ls=ls[:2], active_dims=[0, 1]) * part.ExpQuad(3, ls=ls[2], active_dims=[2])
        ),
        "a product with a season": lambda ls, eta: (
            part.Matern52(3, ls=ls[:2], active_dims=[0, 1])
            * part.Periodic(3, period=2.0, ls=ls[2], active_dims=[2])
        ),
    }.items():
        with pm.Model() as model:
            ls, eta = pm.LogNormal("ls", 1.0, 0.5, shape=6), pm.HalfNormal("eta", 1.0, shape=2)
            gp = sgp.VecchiaMarginal(cov_func=eta[0] ** 2 * kernel(ls, eta[1]), n_inducing=100)
            gp.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1), progressbar=False)
        calls[name] = gradient_of(model)
    taken = cpu_seconds(list(calls.values()), 5)
    for name, seconds in zip(calls, taken, strict=True):
        yield [name, rows, f"{seconds:.3f}", f"{seconds / taken[0]:.2f}"]


def compile_one(pm, sgp, count):
    """Report the seconds of compilation for so many groups."""
    model = by_groups(pm, sgp, count, 200 * count, False)
    clock = [time.perf_counter()]
    call = gradient_of(model)
    clock.append(time.perf_counter())
    call()
    hand_back(seconds=clock[1] - clock[0] - (time.perf_counter() - clock[1]))


def compilation(pm, sgp, quick):
    """Lines: seconds by groups, and over those of one."""
    counts = (1, 3) if quick else (1, 10, 1000)
    taken = [fresh_process(__file__, "--one", count, threads=1)["seconds"] for count in counts]
    return [[count, f"{t:.0f}", f"{t / taken[0]:.2f}"] for count, t in zip(counts, taken, strict=True)]


def few_rows(pm, sgp, n, kind):
    """A model of scattered rows in the plane, or of the cells of a square grid with gaps."""
    rng, d, cells = np.random.default_rng(0), 2, kind in ("dense", "steps")
    side = np.linspace(0.0, 10.0, round((n / 0.8) ** 0.5))
    grid = sgp.RegularGrid([side, side], rng.random((len(side), len(side))) > 0.2)
    X = grid if cells else rng.uniform(0.0, 10.0, (n, d))
    points = grid.points if cells else X
    y = np.sin(points[:, 0]) + 0.3 * rng.standard_normal(len(points))
    with pm.Model() as model:
        ell, eta, sigma = (pm.LogNormal(name) for name in ("ell", "eta", "sigma"))
        part = pm.gp.cov.Matern52
        cov = eta**2 * part(d, ell, active_dims=[0]) * part(d, ell, active_dims=[1])
        if cells:
            gp = sgp.KMCGMarginal(cov_func=cov, **({"n_iter": 100} if kind == "steps" else {}))
        else:
            gp = getattr(sgp, kind)(cov_func=eta**2 * part(d, ls=ell))
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, progressbar=False)
    return model


def few(pm, sgp, quick):
    """Lines: milliseconds of both, by rows."""
    found = []
    pairs = {"rows": ("ExactMarginal", "VecchiaMarginal"), "cells": ("dense", "steps")}
    sizes = {"rows": (250, 500, 600, 700, 1000), "cells": (500, 1000, 1500)}
    for what, kinds in pairs.items():
        for n in sizes[what][:1] if quick else sizes[what]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of probes that are few
                calls = [gradient_of(few_rows(pm, sgp, n, kind)) for kind in kinds]
            exact, other = 1e3 * cpu_seconds(calls, 10)
            found.append([f"{n} {what}", f"{exact:.1f}", f"{other:.1f}", f"{exact / other:.2f}"])
    return found


PARTS = {
    "grids": (
        grids,
        "Density and gradient on complete grids, CPU ms",
        ["cells", "KMCGMarginal", "pm.gp.MarginalKron", "ratio"],
    ),
    "gaps": (
        gaps,
        "A fifth of the cells missing, from the exact log density, nats",
        ["kernel", "steps", "probes", "least", "most", "range"],
    ),
    "groups": (groups, "Density and gradient by group, CPU s", ["", "rows", "s", "ratio"]),
    "sums": (
        sums,
        "Density and gradient with neighbours by kernel, CPU s",
        ["kernel", "rows", "s", "ratio"],
    ),
    "compilation": (compilation, "Compilation, s", ["groups", "s", "ratio"]),
    "few": (
        few,
        "Density and gradient, exact and with neighbours or by steps and probes, CPU ms",
        ["", "exact", "approximate", "ratio"],
    ),
}


def main():
    """Print the tables."""
    parser = arguments(__doc__)
    parser.add_argument("--parts", default="grids,gaps,groups,sums,few")
    parser.add_argument("--one", type=int, help="groups whose compilation is reported, nothing else")
    options = parser.parse_args()
    import pymc as pm

    import pymc_scalable_gp as sgp

    if options.one is not None:
        compile_one(pm, sgp, options.one)
        return
    for part in options.parts.split(","):
        function, title, header = PARTS[part]
        table(title, header, function(pm, sgp, options.quick))


if __name__ == "__main__":
    main()
