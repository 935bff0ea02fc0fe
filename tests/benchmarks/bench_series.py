"""Series of one input in state-space form: a gradient beside the bare recursion, and whole posteriors.

    python tests/benchmarks/bench_series.py [--parts gradient,posterior,million,hourly] [--quick]
        [--peers PYTHON]

* gradient: density and gradient of a Matern 3/2 process at 100 000 uneven times, and a pass of its Kalman
  filter in plain Numba, which gives the density alone; CPU seconds, measured in turn. With the PYTHON of
  other packages, also density and gradient of celerite2's kernel of that name, under JAX.
* posterior, million: the series of ``bench_peers.py --parts series`` with 100 000 times, and with ten times
  as many: importance sampling, and the process at 500 held-out times from 40 of the draws.
* hourly: a daily and a weekly period, each times a slow decay, and a trend; the mode is not known.
"""

import time

import numpy as np
from _common import arguments, cpu_seconds, table
from numba import njit


@njit(fastmath=True)
def plain(dt, rate, variance, noise, e):
    """Log density by the Kalman filter."""
    logp, m0, m1 = -0.5 * len(dt) * np.log(2.0 * np.pi), 0.0, 0.0
    c00, c01, c11 = variance, variance, 2.0 * variance
    for i in range(len(dt)):
        if i:
            u = rate * dt[i]
            d = np.exp(-u)
            p, q, r = c00 - variance, c01 - variance, c11 - 2.0 * variance
            m0, m1 = d * (m0 + u * m1), d * m1
            c00 = variance + d * d * (p + 2.0 * u * q + u * u * r)
            c01 = variance + d * d * (q + u * r)
            c11 = 2.0 * variance + d * d * r
        S, z = c00 + noise[i], e[i] - m0
        logp -= 0.5 * (np.log(S) + z * z / S)
        k0, k1 = c00 / S, c01 / S
        m0, m1 = m0 + k0 * z, m1 + k1 * z
        c11, c01, c00 = c11 - k1 * c01, c01 - k0 * c01, c00 - k0 * c00
    return logp


def gradient(quick, peers):
    """Density and gradient of a model, the bare pass, and celerite2's."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    rng, n = np.random.default_rng(0), 2000 if quick else 100_000
    x = np.sort(rng.uniform(0.0, 1000.0, n))
    y, dt, noise = rng.standard_normal(n), np.diff(x, prepend=x[0]), np.full(n, 0.1)
    with pm.Model() as model:
        cov = pm.HalfNormal("eta", 1.0) ** 2 * pm.gp.cov.Matern32(1, ls=pm.HalfNormal("ell", 1.0))
        gp = sgp.StateSpaceMarginal(cov_func=cov)
        gp.marginal_likelihood("y", X=x[:, None], y=y, sigma=pm.HalfNormal("sigma", 1.0))
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    density, at = model.compile_logp(), model.initial_point()
    flat = np.concatenate([np.ravel(at[v.name]) for v in model.value_vars])
    run = [
        lambda: plain(dt, 1.7, 1.0, noise, y), lambda: density(at), lambda: function(flat),
    ]  # fmt: skip
    cpu_seconds(run, 1)
    bare, value, both = 1e3 * cpu_seconds(run, 20)
    head = ["pass, ms", "density, ms", "density and gradient, ms", "ratio"]
    cells = [f"{bare:.2f}", f"{value:.2f}", f"{both:.2f}", f"{both / bare:.1f}"]
    if peers:
        from bench_peers import run_peer

        found = run_peer(peers, "celerite2_gradient", {"X": x[:, None], "y": y, "Xnew": x[:0]})
        if not isinstance(found, dict):
            raise SystemExit(f"celerite2: {found or 'it took too long'}")
        theirs = 1e3 * found["seconds"]
        head += ["celerite2, ms", "ratio"]
        cells += [f"{theirs:.2f}", f"{theirs / both:.1f}"]
    table("Matern 3/2, uneven times", head, [cells])


def whole(label, X, y, Xnew, truth, kernel):
    """Row of a posterior by importance sampling, and of its predictions."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    clock = time.perf_counter(), time.process_time()
    with pm.Model() as model:
        gp = sgp.StateSpaceMarginal(cov_func=kernel(pm))
        gp.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1.0))
        idata = sgp.sample_importance(random_seed=1, progressbar=False)
        sampled = time.perf_counter() - clock[0], time.process_time() - clock[1]
        clock = time.perf_counter()
        found = gp.predict_posterior(
            Xnew, idata, num_samples=40, random_seed=1, progressbar=False, model=model
        )
    error = np.sqrt(((found["mean"].values - truth) ** 2).mean())
    predicted = time.perf_counter() - clock
    cells = [f"{t:.1f}" for t in (*sampled, predicted)]
    return [label, str(len(y)), *cells, f"{error:.4f}", f"{idata['posterior'].attrs['khat']:.2f}"]


def even_series(times):
    """A Matern 3/2 process over forty lengthscales; every 201st time is held out."""
    from bench_peers import matern32

    rng = np.random.default_rng(1)
    x = np.linspace(0.0, 40.0, times)
    f = matern32(x, rng)
    y = f + 0.3 * rng.standard_normal(times)
    held = np.arange(100, times, 201 * max(1, times // 100_500))
    used = np.setdiff1d(np.arange(times), held)
    return x[used, None], y[used], x[held, None], f[held]


def matern(pm):
    """Kernel of the series."""
    return pm.HalfNormal("eta", 1.0) ** 2 * pm.gp.cov.Matern32(1, ls=pm.InverseGamma("ell", 3.0, 3.0))


def posterior(quick):
    """100 000 times."""
    return whole("Matern 3/2", *even_series(2010 if quick else 100_500), matern)


def million(quick):
    """A million times."""
    return whole("Matern 3/2", *even_series(4020 if quick else 1_005_000), matern)


def hourly(quick):
    """Days and weeks, in hours."""
    n = 1000 if quick else 50_000
    rng, t = np.random.default_rng(2), np.arange(n) / 24.0
    slow = np.cos(2.0 * np.pi * t / 400.0)
    f = np.sin(2.0 * np.pi * t) * (1.0 + 0.3 * slow) + 0.7 * np.cos(2.0 * np.pi * t / 7.0) + slow
    y = f + 0.3 * rng.standard_normal(n)
    held = np.arange(50, n, 101)
    used = np.setdiff1d(np.arange(n), held)

    def kernel(pm):
        cov, slowly = pm.gp.cov, pm.InverseGamma("decay", 3.0, 200.0)
        eta = pm.HalfNormal("eta", 1.0, shape=3)
        shape = pm.InverseGamma("shape", 5.0, 5.0, shape=2)
        day = eta[0] ** 2 * cov.Periodic(1, period=1.0, ls=shape[0])
        week = eta[1] ** 2 * cov.Periodic(1, period=7.0, ls=shape[1])
        return cov.Matern32(1, ls=slowly) * (day + week) + eta[2] ** 2 * cov.Matern32(1, ls=30.0)

    return whole("day and week", t[used, None], y[used], t[held, None], f[held], kernel)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--parts", default="gradient,posterior,million,hourly")
    parser.add_argument("--peers", help="a Python that has celerite2 and jax")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if "gradient" in parts:
        gradient(options.quick, options.peers)
    names = ["posterior", "million", "hourly"]
    rows = [globals()[name](options.quick) for name in names if name in parts]
    if rows:
        head = ["kernel", "rows", "posterior, s", "CPU, s", "predictions, s", "RMSE", "k-hat"]
        table("Posteriors by importance sampling", head, rows)


if __name__ == "__main__":
    main()
