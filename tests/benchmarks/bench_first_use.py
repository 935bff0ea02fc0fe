"""CPU seconds of the first gradient with empty caches: each class, and ``pm.gp.Marginal``.

    python tests/benchmarks/bench_first_use.py [NAME ...]

Each class runs in a process of its own with an empty folder for compiled functions, and then once
more: the second run finds the first one's machine code. CPU seconds, since they depend least on what
else the machine does.
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings

NAMES = (
    "pm", "vecchia", "exact", "grief", "latent", "skip", "softki", "cholqr", "kmcg", "grid", "series",
    "counts",
)  # fmt: skip


def build(name, pm, np):
    """A small model of 1000 rows in three dimensions; a grid of 30 x 40 cells, a series, counts."""
    import pymc_scalable_gp as sgp

    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (1000, 3))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(1000)
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 3, shape=3)
        eta, sigma = pm.HalfNormal("eta", 1), pm.HalfNormal("sigma", 1)
        cov = eta**2 * pm.gp.cov.ExpQuad(3, ls=ell)
        if name == "latent":
            f = sgp.GriefGP(cov_func=cov, grid=10, rank=100).prior("f", X)
            pm.Normal("y", f, sigma, observed=y)
            return model
        if name == "grid":
            axes = [np.linspace(0.0, 1.0, 30), np.linspace(0.0, 1.0, 40)]
            X, y = sgp.RegularGrid(axes), rng.standard_normal((30, 40))
            cov = eta**2 * sgp.cov.Product(pm.gp.cov.ExpQuad, 2, ls=ell[:2])
        if name == "series":
            X, cov = X[:, :1], eta**2 * pm.gp.cov.Matern52(1, ls=ell[0])
        make = {
            "pm": lambda: pm.gp.Marginal(cov_func=cov),
            "vecchia": lambda: sgp.VecchiaMarginal(cov_func=cov, n_inducing=100),
            "exact": lambda: sgp.ExactMarginal(cov_func=cov),
            "grief": lambda: sgp.GriefGP(cov_func=cov, grid=10, rank=100),
            "skip": lambda: sgp.SKIPMarginal(cov_func=cov, rank=10),
            "softki": lambda: sgp.SoftKIMarginal(cov_func=cov, inducing=100),
            "cholqr": lambda: sgp.CholQRMarginal(cov_func=cov, n_inducing=100),
            "kmcg": lambda: sgp.KMCGMarginal(cov_func=cov, n_iter=50),
            "grid": lambda: sgp.KMCGMarginal(cov_func=cov),
            "series": lambda: sgp.StateSpaceMarginal(cov_func=cov),
            "counts": lambda: sgp.VecchiaMarginal(cov_func=cov, n_inducing=100),
        }
        gp = make[name]()
        if name == "cholqr":
            gp.build(X, indices=np.arange(100))
        given = {"sigma": sigma}
        if name == "counts":
            y = rng.poisson(np.exp(y))
            given = {"likelihood": lambda f: pm.Poisson.dist(mu=pm.math.exp(f))}
        gp.marginal_likelihood("y", X=X, y=y, **given)
    return model


def measure(name):
    """CPU seconds from the model to its first gradient."""
    import numpy as np
    import pymc as pm

    warnings.simplefilter("ignore")  # of what the small model lacks
    model = build(name, pm, np)
    start = time.process_time()
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    function(np.concatenate([np.ravel(v) for v in model.initial_point(0).values()]))
    return time.process_time() - start


def main(names):
    """The table, a line per class."""
    sys.stdout.write(f"{'class':8} {'first':>7} {'second':>7}  CPU s\n")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            flags = {"PYTENSOR_FLAGS": f"base_compiledir={folder}", "NUMBA_CACHE_DIR": folder}
            command = [sys.executable, __file__, "--one", name]
            runs = [
                subprocess.run(command, env=os.environ | flags, capture_output=True, check=True)
                for _ in range(2)
            ]
        first, second = (float(run.stdout.split()[-1]) for run in runs)
        sys.stdout.write(f"{name:8} {first:7.1f} {second:7.1f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        sys.stdout.write(f"{measure(sys.argv[2])}\n")
    else:
        main(sys.argv[1:] or NAMES)
