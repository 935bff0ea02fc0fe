"""GPyTorch's SKIP on the matrices of skip.py: run by it, with a Python that has gpytorch.

python _gpytorch_skip.py d r seeds
"""

import json
import sys
import time
import warnings

import gpytorch
import numpy as np
import torch

warnings.filterwarnings("ignore")


def one(d, rank, seed):
    """Relative error of a product, seconds for the first, seconds for another."""
    rng = np.random.default_rng(seed)
    X, v = rng.standard_normal((2500, d)), rng.standard_normal(2500)
    exact = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2)) @ v
    base = gpytorch.kernels.RBFKernel().double()
    base.lengthscale = 1.0
    grid = gpytorch.kernels.GridInterpolationKernel(
        base, grid_size=100, num_dims=1, grid_bounds=[(-6.0, 6.0)]
    )
    kernel = gpytorch.kernels.ProductStructureKernel(grid, num_dims=d).double()
    Xt, vt = torch.tensor(X), torch.tensor(v)
    torch.manual_seed(seed)
    with torch.no_grad(), gpytorch.settings.max_root_decomposition_size(rank):
        start = time.perf_counter()
        lazy = kernel(Xt).evaluate_kernel()
        found = (lazy @ vt[:, None]).numpy()[:, 0]
        first = time.perf_counter() - start
        start = time.perf_counter()
        _ = lazy @ vt[:, None]
        again = time.perf_counter() - start
    return np.linalg.norm(found - exact) / np.linalg.norm(exact), first, again


if __name__ == "__main__":
    d, rank, seeds = map(int, sys.argv[1:4])
    one(d, rank, 0)
    found = np.array([one(d, rank, s) for s in range(seeds)])
    json.dump([found[:, 0].mean(), *found[:, 1:].min(axis=0)], sys.stdout)
