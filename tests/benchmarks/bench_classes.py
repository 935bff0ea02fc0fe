"""Seconds per gradient, minutes to a posterior, and memory of each class, at three sizes.

    python tests/benchmarks/bench_classes.py [--quick] [--classes NAME ...]

A smooth function of three inputs with noise, one lengthscale per input, default settings unless the table
says otherwise; the latent classes under a Poisson likelihood. A gradient is the median of several at points
near the initial one, on one thread. Minutes are those gradients times the leapfrog steps of one chain of
500 + 500 draws, counted over 150 + 150 at the smallest size: two chains on two cores take as long. Memory
is the largest resident set, with PyMC's own; "build" is what happens before the first density, compilation
left out. What takes more than --most seconds per gradient is not tried at the next size, nor is an exact
GP.

The second table has seconds for 1e9 of the operations that `sgp.suggest` counts: ``advice/costs.py`` holds
the geometric mean for each class as ``RATES``.
"""

import sys
import tempfile
import time

import numpy as np
from _common import arguments, fresh_process, hand_back, peak_memory, seconds, table

SIZES = (1_000, 10_000, 100_000)
DRAWS, COUNTED = 500, 150
EXACT = ("pm.gp.Marginal", "ExactMarginal")  # one density: the steps are the same
CLASSES = {
    "pm.gp.Marginal": ("pm", {}),
    "ExactMarginal": ("ExactMarginal", {}),
    "VecchiaMarginal": ("VecchiaMarginal", {}),
    "GriefGP": ("GriefGP", {"rank": 200}),
    "GriefGP, frozen": ("GriefGP", {"rank": 200, "basis": "frozen"}),
    "SKIPMarginal": ("SKIPMarginal", {"rank": 15}),
    "SoftKIMarginal": ("SoftKIMarginal", {"inducing": 512}),
    "CholQRMarginal": ("CholQRMarginal", {"n_inducing": 200}),
    "KMCGMarginal, grid": ("KMCGMarginal", {"n_iter": 40}),
    "VecchiaLatent": ("VecchiaLatent", {"n_inducing": 100, "neighbors": None}),
    "SKIPLatent": ("SKIPLatent", {"rank": 12}),
    "SoftKILatent": ("SoftKILatent", {"inducing": 100}),
}


def data(name, n):
    """Inputs, or a grid of about n cells; targets."""
    import pymc_scalable_gp as sgp

    rng = np.random.default_rng(0)
    if "grid" in name:
        side = round(n ** (1 / 3))
        observed = np.ones((side,) * 3, dtype=bool)
        observed.flat[0] = False  # a complete grid is exact, without steps
        X = sgp.RegularGrid([np.linspace(-1.0, 1.0, side)] * 3, observed)
        rows = X.points
    else:
        X = rows = rng.uniform(-1.0, 1.0, (n, 3))
    f = np.sin(3.0 * rows[:, 0]) + np.cos(2.0 * rows[:, 1]) * rows[:, 2]
    if "Latent" in name:
        return X, rng.poisson(np.exp(f))
    return X, f + 0.3 * rng.standard_normal(len(f))


def model_of(label, n):
    """The model, and the seconds that it took to build."""
    import pymc as pm

    import pymc_scalable_gp as sgp

    name, options = CLASSES[label]
    X, y = data(label, n)
    clock = time.perf_counter()
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 5, 5, shape=3)
        cov = pm.HalfNormal("eta", 1.0) ** 2 * pm.gp.cov.ExpQuad(3, ls=ell)
        make = pm.gp.Marginal if name == "pm" else getattr(sgp, name)
        gp = make(cov_func=cov, **options)
        if "Latent" in name:
            pm.Poisson("y", pm.math.exp(gp.prior("f", X=X)), observed=y)
        else:
            gp.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1.0))
    return model, time.perf_counter() - clock


def operations(label, n):
    """What `sgp.suggest` counts for a gradient, in 1e9."""
    import pymc as pm

    from pymc_scalable_gp.advice.costs import cost_of
    from pymc_scalable_gp.advice.facts import find_facts

    name, options = CLASSES[label]
    X = data(label, n)[0]
    grid, points = (X, X.points) if "grid" in label else (None, X)
    kernel = pm.gp.cov.ExpQuad(3, ls=1.0)
    facts = find_facts(points, grid, kernel, True, "Latent" not in name)
    return 1e-9 * cost_of(name, options, facts).operations


def rates(rows):
    """Name, geometric mean, least and most, from pairs of label and seconds for 1e9 operations."""
    by_class = {}
    for label, rate in rows:
        by_class.setdefault(CLASSES[label][0], []).append(rate)
    return [
        (name, float(np.exp(np.mean(np.log(found)))), min(found), max(found))
        for name, found in by_class.items()
    ]


def measure(label, n, repeats):
    """One class at one size, in this process."""
    model, built = model_of(label, n)
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    start = np.concatenate([np.ravel(v) for v in model.initial_point(0).values()])
    rng = np.random.default_rng(0)

    def call():
        value, gradient = function(start + 0.02 * rng.standard_normal(len(start)))
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            raise SystemExit("the density or its gradient is not finite")

    call()
    hand_back(built=built, gradient=seconds(call, repeats), memory=peak_memory())


def steps(label, n, draws):
    """Leapfrog steps of one chain, tuning included."""
    import pymc as pm

    model, _ = model_of(label, n)
    with model:
        idata = pm.sample(
            draws, tune=draws, chains=1, cores=1, random_seed=0, nuts_sampler="nutpie",
            nuts={"adaptation": "low_rank"} if "Latent" in label else {}, progressbar=False,
            compute_convergence_checks=False, discard_tuned_samples=False,
        )  # fmt: skip
    groups = ("warmup_sample_stats", "sample_stats")
    hand_back(steps=sum(int(idata[g]["n_steps"].sum()) for g in groups if g in idata))


def main():
    """Run what the command line asks for."""
    parser = arguments(__doc__)
    parser.add_argument(
        "--classes", nargs="+", default=list(CLASSES), choices=list(CLASSES), metavar="NAME"
    )
    parser.add_argument("--most", type=float, default=2.0, help="seconds per gradient")
    parser.add_argument("--one", nargs=2, help="used by the script itself")
    parser.add_argument("--steps", action="store_true", help="used by the script itself")
    options = parser.parse_args()
    sizes = SIZES[:1] if options.quick else SIZES
    draws = 50 if options.quick else COUNTED
    if options.one:
        label, n = options.one
        if options.steps:
            return steps(label, int(n), draws)
        return measure(label, int(n), 3 if int(n) > SIZES[0] else 9)
    flags = ["--quick"] if options.quick else []
    rows, counts = [], {}
    with tempfile.TemporaryDirectory() as cache:
        for label in options.classes:
            sampled = EXACT[-1] if label in EXACT else label
            if sampled not in counts:
                more = ("--one", sampled, SIZES[0], "--steps", *flags)
                found = fresh_process(__file__, *more, cache=cache, threads=1)
                counts[sampled] = found["steps"] * DRAWS / draws
            for n in sizes:
                found = fresh_process(__file__, "--one", label, n, cache=cache, threads=1)
                spent = found["gradient"]
                minutes, memory = spent * counts[sampled] / 60.0, found["memory"] / 2**30
                rows.append((label, n, found["built"], spent, minutes, memory))
                print(*rows[-1], file=sys.stderr, flush=True)
                if spent > options.most or label in EXACT:
                    break
    header = ("", "n", "build, s", "gradient, s", "minutes", "GiB")
    table("three inputs", header, rows)
    found = [(row[0], row[3] / operations(*row[:2])) for row in rows if row[0] != EXACT[0]]
    table("seconds for 1e9 operations", ("", "mean", "least", "most"), rates(found))


if __name__ == "__main__":
    main()
