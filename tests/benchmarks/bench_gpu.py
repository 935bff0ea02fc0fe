"""Exact Gaussian processes and neighbours under JAX, on the device that JAX finds, in double precision.

    python tests/benchmarks/bench_gpu.py --data DIR [--parts exact,neighbors,posterior,large]
        [--rows N,N,...] [--posterior N,N,...] [--large N] [--draws N] [--seconds N] [--quick]

`exact`: a density and a gradient of `ExactMarginal` on rows of kin40k, by JAX, and by Numba on the
processor up to 5000 rows. `neighbors`: the same of `VecchiaMarginal` with 128 points and 30 neighbours, all
rows. `posterior`: draws of that model's posterior by importance sampling, all in PyTensor's mode JAX, and
their correction to the exact Gaussian process, which takes --seconds at most. The model is that of
`bench_importance.py`. `large`: the part of that name of `bench_reliability.py`. Without a GPU JAX takes
the processor, as the first line says.
"""

import time

import pytensor
from _common import arguments, regression, seconds, table
from bench_importance import against, model_of, row, timed
from bench_reliability import PARTS as RELIABILITY

MOST_ON_CPU = 5000  # rows, of which Numba's dense density is measured too


def device() -> str:
    """What JAX calls the device that it computes on."""
    import jax

    return jax.devices()[0].device_kind


def costs(model, mode, repeats=3):
    """Seconds of a density and of one with its gradient, and of the first of each."""
    from pymc_scalable_gp.importance.density import Density

    with pytensor.config.change_flags(mode=mode):
        density = Density(model)
        point, found = density.initial[None], []
        for call in (density.values, density.with_gradients):
            first = seconds(lambda call=call: call(point))
            found.append([seconds(lambda call=call: call(point), repeats), first])
    (value, value_first), (gradient, gradient_first) = found
    return value, gradient, value_first + gradient_first


def cost_rows(pm, sgp, folder, sizes, exact):
    """Lines of the table for models of so many rows."""
    for n in sizes:
        X, y, _ = regression(folder, n)
        model, _ = model_of(pm, sgp, X, y, exact=exact)
        for mode in ("JAX", "NUMBA"):
            if mode == "JAX" or not exact or n <= MOST_ON_CPU:
                on = device() if mode == "JAX" else "Numba on the CPU"
                value, gradient, first = costs(model, mode)
                yield [len(y), on, f"{value:.3f}", f"{gradient:.3f}", f"{first:.1f}"]


def posteriors(pm, sgp, args):
    """Lines of the table for draws of the approximate posterior, and for those of the exact one."""
    for n in args.posterior:
        X, y, name = regression(args.data, n)
        model, gp = model_of(pm, sgp, X, y)
        quiet = {"progressbar": False, "random_seed": 1, "model": model}
        with pytensor.config.change_flags(mode="JAX"):
            rough, spent = timed(lambda quiet=quiet: sgp.sample_importance(**quiet))
            yield row(f"{name}, {len(y)} rows, VIF", rough, spent, "", "")
            limits = {"draws": args.draws, "max_seconds": args.seconds}
            better, spent = timed(lambda gp=gp, rough=rough, more=quiet | limits: gp.correct(rough, **more))
            yield row(f"{name}, {len(y)} rows, exact", better, spent, *against(better, rough))


def main():
    """Print the tables, each as soon as it is there."""
    parser = arguments(__doc__, data=True)
    parser.add_argument("--parts", default="exact,neighbors,posterior,large")
    parser.add_argument("--large", type=int, default=400_000, help="rows of the part of that name")
    parser.add_argument("--rows", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--posterior", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=1200.0)
    args = parser.parse_args()
    import pymc as pm

    import pymc_scalable_gp as sgp

    args.rows = args.rows or ([500] if args.quick else [5000, 20_000, 36_000])
    args.posterior = args.posterior or ([500] if args.quick else [36_000])
    print(f"JAX computes on: {device()}\n", flush=True)
    head = ["rows", "on", "density, s", "with gradient, s", "first of both, s"]
    begin, parts = time.perf_counter(), args.parts.split(",")
    if "exact" in parts:
        table("exact", head, list(cost_rows(pm, sgp, args.data, args.rows, True)))
    if "neighbors" in parts:
        big = [1000] if args.quick else [36_000]
        table("neighbors", head, list(cost_rows(pm, sgp, args.data, big, False)))
    if "posterior" in parts:
        head = ["data", "seconds", "k-hat", "ESS", "densities + gradients", "shift", "sds' ratio"]
        for line in posteriors(pm, sgp, args):
            table("posterior", head, [line])
    if "large" in parts:
        args.rows, args.cores = 4000 if args.quick else args.large, 1
        function, title, head = RELIABILITY["large"]
        with pytensor.config.change_flags(mode="JAX"):
            table(title, head, function(pm, sgp, args))
    print(f"{time.perf_counter() - begin:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
