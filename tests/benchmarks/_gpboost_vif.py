"""Seconds of one likelihood by GPBoost's VIF, on one thread: run by bench_vecchia.py where it is.

    PYTHON tests/benchmarks/_gpboost_vif.py DATA.npz POINTS NEIGHBORS REPEATS

DATA has X, y and the covariance parameters: noise variance, scale and a lengthscale per input,
squared where GPBoost has variances. Prints the seconds of the fastest call.
"""

import sys
import time

import gpboost
import numpy as np


def main(source, points, neighbors, repeats):
    """The first call makes inducing points and neighbours, and is not counted."""
    data = np.load(source)
    model = gpboost.GPModel(
        gp_coords=data["X"], cov_function="gaussian_ard", gp_approx="vif", seed=0,
        num_ind_points=int(points), num_neighbors=int(neighbors), num_parallel_threads=1,
    )  # fmt: skip
    parameters, found = data["parameters"], []
    model.neg_log_likelihood(cov_pars=parameters, y=data["y"])
    for k in range(int(repeats)):
        clock = time.process_time()
        model.neg_log_likelihood(cov_pars=parameters * (1.0 + 0.001 * (k + 1)), y=data["y"])
        found.append(time.process_time() - clock)
    sys.stdout.write(f"{min(found)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
