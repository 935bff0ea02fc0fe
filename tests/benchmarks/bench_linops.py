"""Products with structured matrices against SciPy's and a plain reshape-product.

    python tests/benchmarks/bench_linops.py [--quick]

One product with a vector, compiled for Numba, PyMC's default; all data float64. The Toeplitz peer is
``scipy.linalg.matmul_toeplitz``; the Kronecker peer multiplies the reshaped vector by one factor after
the other in NumPy.
"""

import numpy as np
from _common import arguments, seconds, table
from scipy import linalg


def compiled(operator, n, tensors):
    """Function of a vector."""
    import pytensor
    import pytensor.tensor as pt

    v = pt.vector(dtype="float64", shape=(n,))
    function = pytensor.function([v, *tensors], operator @ v, mode="NUMBA", trust_input=True)
    return lambda *values: function(*values)


def toeplitz(n, rng):
    """Seconds of ours and of SciPy's, and the relative difference of the results."""
    import pytensor.tensor as pt

    from pymc_scalable_gp.linops.structured import Toeplitz

    values, v = np.exp(-0.5 * (np.arange(n) / 10.0) ** 2), rng.standard_normal(n)
    column = pt.vector(dtype="float64", shape=(n,))
    ours = compiled(Toeplitz(column), n, [column])
    return compare(lambda: ours(v, values), lambda: linalg.matmul_toeplitz(values, v))


def kronecker(shape, rng):
    """The same for dense factors."""
    import pytensor.tensor as pt

    from pymc_scalable_gp.linops.structured import Kronecker

    factors = [np.exp(-0.5 * (np.subtract.outer(np.arange(g), np.arange(g)) / 2.0) ** 2) for g in shape]
    v = rng.standard_normal(int(np.prod(shape)))
    tensors = [pt.matrix(dtype="float64", shape=f.shape) for f in factors]
    ours = compiled(Kronecker(tensors), len(v), tensors)

    def plain():
        out = v
        for factor in factors:
            out = (factor @ out.reshape((len(factor), -1))).T.ravel()
        return out

    return compare(lambda: ours(v, *factors), plain)


def compare(ours, theirs):
    """Medians of alternating runs."""
    a, b = ours(), theirs()  # compile, warm up
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(15)]
    mine, peer = np.median(pairs, axis=0)
    return [mine, peer, mine / peer, np.abs(a - b).max() / np.abs(b).max()]


def main():
    args = arguments(__doc__).parse_args()
    rng = np.random.default_rng(0)
    sizes = (1000, 60_000) if args.quick else (1000, 60_000, 1_000_000)
    shapes = [(100, 100)] if args.quick else [(100, 100), (1000, 1000), (100,) * 3, (30,) * 4]
    rows = [[f"Toeplitz {n}", *toeplitz(n, rng)] for n in sizes]
    rows += [["Kronecker " + " x ".join(map(str, s)), *kronecker(s, rng)] for s in shapes]
    table("one product with a vector", ["", "ours s", "peer s", "ratio", "difference"], rows)


if __name__ == "__main__":
    main()
