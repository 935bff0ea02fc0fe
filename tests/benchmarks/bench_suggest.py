"""Seconds a gradient that `sgp.suggest` predicts, beside those of compiled gradients.

    python tests/benchmarks/bench_suggest.py [--quick] [--longest 5] [--arm]

One line for each candidate of each problem; those that are predicted to take longer than ``--longest``
seconds are passed over. Then the geometric mean of measured over predicted for each class: what
``advice/costs.py`` has as ``FACTORS`` should be multiplied by that. Run it with
``OPENBLAS_NUM_THREADS=1``, since that is what is predicted. ``--arm`` prints the table of
docs/which_class.md alone.
"""

import sys
import time
import warnings

import numpy as np
import pymc as pm
from _common import arguments, table
from quickstart import robot_arm, standardize

import pymc_scalable_gp as sgp
from pymc_scalable_gp.advice.candidates import candidates
from pymc_scalable_gp.advice.facts import find_facts
from pymc_scalable_gp.advice.machine import measure, shortest
from pymc_scalable_gp.advice.sample import kernel_function

# Rows, inputs, likelihood, and whether the kernel is free.
PROBLEMS = [
    (1000, 3, "normal", True), (4000, 3, "normal", True), (16_000, 5, "normal", True),
    (4000, 2, "grid", True), (32_000, 1, "grid", True), (2000, 4, "categories", True),
    (6000, 3, "normal", False), (1000, 3, "poisson", True), (8000, 4, "poisson", True),
]  # fmt: skip


def inputs(n, d, kind):
    """Rows, or a grid."""
    if kind == "grid":
        side = round(n ** (1.0 / d))
        return sgp.RegularGrid([0.05 * np.arange(side) for _ in range(d)])
    rng = np.random.default_rng(0)
    return rng.integers(0, 3, (n, d)) * 1.0 if kind == "categories" else rng.uniform(-2, 2, (n, d))


def kernel(d, kind, free):
    """Covariance at lengthscales below one, free or not."""
    ell, eta = np.full(d, 0.7), 1.0
    if free and kind != "categories":
        ell = pm.LogNormal("ell", 0.0, 0.5, shape=d, initval=ell)
    if free:
        eta = pm.HalfNormal("eta", 1, initval=1.0)
    made = sgp.cov.Hamming(d, ls=1.0) if kind == "categories" else pm.gp.cov.ExpQuad(d, ls=ell)
    return eta**2 * made


def gradient_seconds(candidate, X, kind, free):
    """Median processor time of a compiled density with its gradient."""
    n = X.n if kind == "grid" else len(X)
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        cov = kernel(len(X.axes) if kind == "grid" else X.shape[1], kind, free)
        gp = getattr(sgp, candidate.class_name)(cov_func=cov, **candidate.settings)
        if kind == "poisson":
            pm.Poisson("y", pm.math.exp(gp.prior("f", X=X)), observed=rng.poisson(1.0, n))
        else:
            options = {}
            if candidate.settings.get("rotate"):
                options = {"weights": sgp.weights_prior("w", gp.build(X))}
            sigma, y = pm.HalfNormal("sigma", 1, initval=0.3), rng.standard_normal(n)
            gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, progressbar=False, **options)
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    start = model.initial_point(0)
    x = np.concatenate([np.ravel(start[v.name]) for v in model.value_vars]).astype(float)
    function(x)
    times, begin = [], time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - begin < 1.0 and len(times) < 15):
        clock = time.process_time()
        function(x + 1e-3 * len(times))
        times.append(time.process_time() - clock)
    return float(np.median(times))


def rates_for(cov, X):
    """Rates of this machine with the kernel at hand."""
    rows = (X.points if isinstance(X, sgp.RegularGrid) else X)[:400]
    function = kernel_function(cov, None, None)
    return measure(len(rows) ** 2 / shortest(lambda: function(rows, rows)))


def arm():
    """What `suggest` says of the robot arm."""
    problem = robot_arm(10_000, np.random.default_rng(0))
    X, y = standardize(problem.X)[0], standardize(problem.y)[0]
    with pm.Model():
        ell = pm.LogNormal("ell", 1, 1, shape=8)
        eta, sigma = pm.HalfNormal("eta", 2), pm.HalfNormal("sigma", 1)
        cov = eta**2 * pm.gp.cov.ExpQuad(8, ls=ell)
        exact = pm.gp.Marginal(cov_func=cov)
        start = sgp.subset_map(exact, X, y, sigma, random_seed=0, progressbar=False)
        print(sgp.suggest(X, y, cov, minutes=60, memory=8, point=start))


def main():
    parser = arguments(__doc__)
    parser.add_argument("--longest", type=float, default=5.0, help="seconds a gradient")
    parser.add_argument("--arm", action="store_true", help="the table of the documentation alone")
    args = parser.parse_args()
    if args.arm:
        arm()
        return
    warnings.simplefilter("ignore", UserWarning)
    rows, ratios = [], {}
    for n, d, kind, free in PROBLEMS[: 1 if args.quick else None]:
        X = inputs(n, d, kind)
        cov = kernel(d, kind, False)
        grid, rows_of = (X, X.points) if kind == "grid" else (None, X)
        facts = find_facts(rows_of, grid, cov, free, kind != "poisson")
        rates = rates_for(cov, X)
        for each in candidates(facts):
            predicted = each.cost.seconds(each.class_name, rates)
            if predicted > args.longest or (kind == "grid" and each.class_name != "KMCGMarginal"):
                continue
            measured = gradient_seconds(each, X, kind, free)
            ratios.setdefault(each.class_name, []).append(measured / predicted)
            rows.append((f"{kind} {n} x {d}: {each}", predicted, measured, measured / predicted))
            print(*rows[-1], file=sys.stderr, flush=True)
    table("Seconds a gradient", ("candidate", "predicted", "measured", "ratio"), rows)
    means = [
        (name, float(np.exp(np.mean(np.log(r)))), min(r), max(r)) for name, r in ratios.items()
    ]
    table("Measured over predicted", ("class", "mean", "least", "most"), means)


if __name__ == "__main__":
    main()
