"""Rows that no memory holds: one pass over them, and a likelihood that does not know how many they are.

    python tests/benchmarks/bench_scale.py [--quick] [PART ...]

Parts: `flat`, seconds of a gradient for growing n; `append`, adding one per cent of new rows; `cap`,
20 million streamed rows under a limit of 3 GiB on the address space; `pass`, 2 049 280 rows with 11
inputs from zarr, beside reading and matrix products alone; `workers`, one dask worker and two; `jax`, a
gradient under JAX on the CPU and on a GPU, where there is one; `nuts`, all hyperparameters sampled on
the statistics of those rows. `--quick` takes 1% of the rows.
"""

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from _common import arguments, fresh_process, hand_back, peak_memory, seconds, table

D, BLOCK = 11, 65_536
PARTS = ("flat", "append", "cap", "pass", "workers", "jax", "nuts")


def rows(n, seed=0, block=BLOCK):
    """Simulated blocks (X, y): sums of waves in some of the inputs, and noise."""
    rng = np.random.default_rng(seed)
    for start in range(0, n, block):
        X = rng.uniform(-1.7, 1.7, (min(block, n - start), D))
        y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.cos(3.0 * X[:, 3])
        yield X, y + 0.3 * rng.standard_normal(len(X))


def build(kind, size, rank):
    """Model and GP, built on a sample; `size` points, or `rank` frozen features."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    sample, target = next(rows(20_000, seed=1))
    corners = np.array([[-1.71] * D, [1.71] * D])
    sample = np.vstack([sample, corners])
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 6, shape=D)
        eta, sigma = pm.HalfNormal("eta", 2), pm.HalfNormal("sigma", 1)
        cov = eta**2 * pm.gp.cov.ExpQuad(D, ls=ell)
        if kind == "softki":
            Z = sample[np.random.default_rng(2).permutation(len(target))[:size]]
            gp = sgp.SoftKIMarginal(cov_func=cov, inducing=Z)
            gp.build(sample)
        else:
            gp = sgp.GriefGP(cov_func=cov, basis="frozen", grid=10, rank=rank)
            start = sgp.subset_map(gp, sample[:-2], target, sigma, random_seed=0, progressbar=False)
            gp.build(sample, point=start)
    return model, gp, sigma


def gradient(model, gp, sigma, stats):
    """Seconds of a log density and its gradient."""
    with model:
        gp.marginal_likelihood("y", statistics=stats, sigma=sigma)
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    start = np.concatenate([np.ravel(v) for v in model.initial_point(0).values()])
    function(start)
    return seconds(lambda: function(start), 20)


def flat(scale):
    """Seconds of a pass and of a gradient for growing n."""
    found = []
    for n in (10_000, 100_000, 1_000_000, int(10_000_000 * scale)):
        model, gp, sigma = build("softki", 128, None)
        with model:
            start = time.perf_counter()
            stats = gp.summarize(rows(n), progressbar=False)
            passed = time.perf_counter() - start
        found.append((n, passed, 1e3 * gradient(model, gp, sigma, stats)))
    return [["rows", "pass, s", "gradient, ms"], *found]


def append(scale):
    """Seconds of new rows beside those of all, and the difference of the statistics."""
    n = int(1_000_000 * scale)
    model, gp, _ = build("softki", 256, None)
    with model:
        old, new = list(rows(n)), list(rows(n // 100, seed=9))
        first = gp.summarize(old, progressbar=False)
        gp.summarize(new, progressbar=False)
        merged = []
        spent = seconds(lambda: merged.append(first + gp.summarize(new, progressbar=False)))
        whole = []
        all_rows = seconds(lambda: whole.append(gp.summarize(old + new, progressbar=False)))
    a, b = (s.triangle.T @ s.triangle for s in (merged[0], whole[0]))
    return [["all, s", "new alone, s", "share", "difference"],
            (all_rows, spent, spent / all_rows, np.abs(a - b).max() / np.abs(b).max())]  # fmt: skip


def cap(scale):
    """20 million rows with no more than 3 GiB of address space beyond what is mapped at the start."""
    model, gp, _ = build("softki", 128, None)
    with model:
        gp.summarize(rows(1000), progressbar=False)  # everything is loaded
        resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
        start = time.perf_counter()
        stats = gp.summarize(rows(int(20_000_000 * scale)), progressbar=False)
    spent = time.perf_counter() - start
    return [["rows", "s", "peak, GiB"], (stats.size, spent, peak_memory() / 2**30)]


def stored(folder, n):
    """The rows in zarr arrays."""
    import zarr

    X = zarr.create_array(Path(folder) / "X", shape=(n, D), chunks=(BLOCK, D), dtype="float64")
    y = zarr.create_array(Path(folder) / "y", shape=(n,), chunks=(BLOCK,), dtype="float64")
    for number, (block, target) in enumerate(rows(n)):
        place = slice(number * BLOCK, number * BLOCK + len(target))
        X[place], y[place] = block, target
    return X, y


def one_pass(scale):
    """Seconds of a pass over zarr arrays, beside reading them and the products Phi' Phi alone."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        X, y = stored(folder, int(2_049_280 * scale))
        reading = seconds(lambda: [X[i : i + BLOCK] for i in range(0, y.shape[0], BLOCK)])
        for kind, width in (("softki", 512), ("frozen", 500)):
            model, gp, _ = build(kind, width, width)
            phi = np.random.default_rng(0).standard_normal((2048, width))
            products = seconds(lambda phi=phi: phi.T @ phi, 20) * y.shape[0] / 2048
            with model:
                gp.summarize(X[:4096], y[:4096], progressbar=False)
                spent = seconds(lambda gp=gp: gp.summarize(X, y, progressbar=False))
            floor = reading + products
            found.append((kind, spent, reading, products, spent / floor, peak_memory() / 2**30))
    return [["basis", "s", "reading", "Phi'Phi", "ratio", "peak, GiB"], *found]


def workers(scale):
    """Seconds of the pass with one dask worker and with two, each with one BLAS thread."""
    import dask.array as da
    from distributed import Client, LocalCluster

    spent = []
    with tempfile.TemporaryDirectory() as folder:
        X, y = stored(folder, int(1_000_000 * scale))
        model, gp, _ = build("softki", 256, None)
        for count in (1, 2):
            options = {"n_workers": count, "threads_per_worker": 1, "dashboard_address": None}
            with LocalCluster(**options) as cluster, Client(cluster), model:
                xs, ys = da.from_zarr(X), da.from_zarr(y)
                gp.summarize(xs[: 4 * BLOCK], ys[: 4 * BLOCK])  # workers have compiled
                spent.append(seconds(lambda xs=xs, ys=ys: gp.summarize(xs, ys)))
    return [["one worker, s", "two, s", "ratio"], (*spent, spent[0] / spent[1])]


def nuts(scale):
    """All eleven lengthscales, scale and noise by NUTS on the statistics."""
    import arviz as az
    import pymc as pm

    found = []
    for kind, width in (("softki", 512), ("frozen", 500)):
        model, gp, sigma = build(kind, width, width)
        with model:
            stats = gp.summarize(rows(int(2_049_280 * scale)), progressbar=False)
            gp.marginal_likelihood("y", statistics=stats, sigma=sigma)
            start = time.perf_counter()
            idata = pm.sample(500, tune=500, chains=2, cores=2, random_seed=1, progressbar=False)
        spent = time.perf_counter() - start
        rhat = max(float(v.max()) for v in az.rhat(idata).data_vars.values())
        diverging = int(idata["sample_stats"]["diverging"].sum())
        found.append((kind, stats.size, spent / 60.0, f"{rhat:.4f}", diverging))
    return [["basis", "rows", "minutes", "R-hat", "divergences"], *found]


def jax_gradient(scale):
    """Seconds of a gradient in float64 under JAX, beside Numba's, on each kind of device there is."""
    import jax
    from pymc.sampling.jax import get_jaxified_logp

    jax.config.update("jax_enable_x64", True)
    found = []
    for kind, width in (("softki", 512), ("frozen", 500)):
        model, gp, sigma = build(kind, width, width)
        with model:
            stats = gp.summarize(rows(int(100_000 * scale) + 20_000), progressbar=False)
        numba = 1e3 * gradient(model, gp, sigma, stats)
        start = list(model.initial_point(0).values())
        slope = jax.value_and_grad(get_jaxified_logp(model))
        for name in ("cpu", "gpu"):
            try:
                device = jax.devices(name)[0]
            except RuntimeError:
                found.append((kind, name, "no such device: skipped", numba))
                continue
            at = [jax.device_put(value, device) for value in start]
            function = jax.jit(slope)
            jax.block_until_ready(function(at))
            spent = seconds(lambda f=function, at=at: jax.block_until_ready(f(at)), 20)
            found.append((kind, name, 1e3 * spent, numba))
    return [["basis", "device", "JAX, ms", "Numba on the CPU, ms"], *found]


RUN = dict(zip(PARTS, (flat, append, cap, one_pass, workers, jax_gradient, nuts), strict=True))


def main():
    """Each part in a process of its own."""
    parser = arguments(__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all but nuts when left out")
    parser.add_argument("--inside", action="store_true", help="run one part in this process")
    args = parser.parse_args()
    if args.inside:
        hand_back(rows=RUN[args.parts[0]](0.01 if args.quick else 1.0))
        return
    for part in args.parts or PARTS[:-1]:
        more = ["--quick"] if args.quick else []
        header, *found = fresh_process(__file__, part, "--inside", *more, threads=1)["rows"]
        table(part, header, found)


if __name__ == "__main__":
    main()
