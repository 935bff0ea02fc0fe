"""What `sgp.suggest` says of 10 000 rows of a simulated robot arm, for the documentation.

    python tests/benchmarks/bench_suggest.py [--quick]

Nothing is timed: seconds are counted operations times the rates of ``advice/costs.py``, which
``bench_classes.py`` measures.
"""

import numpy as np
import pymc as pm
from _common import arguments
from problems import robot_arm, standardize

import pymc_scalable_gp as sgp


def main():
    """Run what the command line asks for."""
    n = 1000 if arguments(__doc__).parse_args().quick else 10_000
    problem = robot_arm(n, np.random.default_rng(0))
    X, y = standardize(problem.X)[0], standardize(problem.y)[0]
    with pm.Model():
        ell = pm.LogNormal("ell", 1, 1, shape=8)
        eta, sigma = pm.HalfNormal("eta", 2), pm.HalfNormal("sigma", 1)
        cov = eta**2 * pm.gp.cov.ExpQuad(8, ls=ell)
        exact = pm.gp.Marginal(cov_func=cov)
        start = sgp.subset_map(exact, X, y, sigma, random_seed=0, progressbar=False)
        print(sgp.suggest(X, y, cov, minutes=60, memory=8, point=start))


if __name__ == "__main__":
    main()
