"""Fits by other packages, in the Python that has them, for bench_peers.py, _series.py and _likelihoods.py.

    PYTHON tests/benchmarks/_peers.py FIT PROBLEM.npz RESULT.npz

PROBLEM has X, y, Xnew and the target's kind; RESULT gets mean and sd at Xnew, of the latent function
or, for kin40k, of the target, and the seconds from data to predictions, imports left out.
"""

import sys
import time

import numpy as np


def gpytorch_svgp(X, y, Xnew, kind, points=512, epochs=None):
    """Stochastic variational GP, Adam, whitened; a lengthscale per input."""
    import gpytorch
    import torch

    class Poisson(gpytorch.likelihoods._OneDimensionalLikelihood):
        def forward(self, f):
            return torch.distributions.Poisson(rate=f.exp())

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, inducing, base):
            q = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
            super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, q))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(base)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    torch.manual_seed(0)
    clock = time.perf_counter()
    epochs = epochs or {"counts": 200, "series": 10}.get(kind, 30)
    points = 200 if kind == "counts" else points
    dtype = torch.float32 if kind == "kin40k" else torch.float64
    X, y, Xnew = (torch.as_tensor(v, dtype=dtype) for v in (X, y, Xnew))
    d = X.shape[1]
    kernels = gpytorch.kernels
    base = kernels.MaternKernel(1.5) if kind == "series" else kernels.RBFKernel(ard_num_dims=d)
    model = Model(X[torch.randperm(len(X))[:points]].clone(), base).to(dtype)
    likelihood = Poisson() if kind == "counts" else gpytorch.likelihoods.GaussianLikelihood()
    likelihood = likelihood.to(dtype)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    data = torch.utils.data.TensorDataset(X, y)
    for _ in range(epochs):
        for rows, targets in torch.utils.data.DataLoader(data, 1024, shuffle=True):
            optimizer.zero_grad()
            loss = -bound(model(rows), targets)
            loss.backward()
            optimizer.step()
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        found = model(Xnew)
        if kind == "kin40k":
            found = likelihood(found)
        mean, sd = found.mean.numpy(), found.variance.sqrt().numpy()
    return mean, sd, time.perf_counter() - clock


# Kernels of GPBoost by kind of problem; of others a Matern 5/2 kernel with a lengthscale per input.
KERNELS = {
    "series": {"cov_function": "matern", "cov_fct_shape": 1.5},
    "kin40k": {"cov_function": "gaussian_ard"},
    "counts": {"cov_function": "gaussian"},
}
# Its likelihoods, where the kind is not one of them.
LIKELIHOODS = {"series": "gaussian", "kin40k": "gaussian", "counts": "poisson"}


def gpboost_vecchia(X, y, Xnew, kind, approx="vecchia", neighbors=30, **options):
    """Maximum likelihood (Laplace for counts and classes) with Vecchia's approximation."""
    import gpboost

    clock = time.perf_counter()
    kernel = KERNELS.get(kind, {"cov_function": "matern_ard", "cov_fct_shape": 2.5})
    model = gpboost.GPModel(
        gp_coords=X, likelihood=LIKELIHOODS.get(kind, kind), gp_approx=approx,
        num_neighbors=neighbors, seed=0, **options, **kernel,
    )  # fmt: skip
    model.fit(y=y.astype(float), X=np.ones((len(y), 1)))
    found = model.predict(
        gp_coords_pred=Xnew, X_pred=np.ones((len(Xnew), 1)), predict_var=True,
        predict_response=kind == "kin40k",
    )  # fmt: skip
    return found["mu"], np.sqrt(found["var"]), time.perf_counter() - clock


def gpboost_vif(X, y, Xnew, kind):
    """The same with 128 inducing points beside the neighbours."""
    return gpboost_vecchia(X, y, Xnew, kind, approx="vif", num_ind_points=128)


def gpboost_laplace(X, y, Xnew, kind):
    """The same with the points and neighbours of bench_likelihoods.py."""
    return gpboost_vecchia(X, y, Xnew, kind, approx="vif", neighbors=15, num_ind_points=100)


def celerite2_exact(X, y, Xnew, kind):
    """Maximum likelihood of a Matern 3/2 kernel, linear in n."""
    import celerite2
    from scipy.optimize import minimize

    clock = time.perf_counter()
    x, center = X[:, 0], y.mean()
    gp = celerite2.GaussianProcess(celerite2.terms.Matern32Term(sigma=1.0, rho=1.0), mean=center)

    def fit(log_parameters):
        scale, length, noise = np.exp(log_parameters)
        gp.kernel = celerite2.terms.Matern32Term(sigma=scale, rho=length)
        gp.compute(x, diag=noise**2, quiet=True)
        return -gp.log_likelihood(y)

    fit(minimize(fit, np.log([1.0, 1.0, 0.3]), method="L-BFGS-B").x)
    mean, var = gp.predict(y, t=Xnew[:, 0], return_var=True)
    return mean, np.sqrt(var), time.perf_counter() - clock


def celerite2_gradient(X, y, Xnew, kind):
    """A log density and its gradient for mean and sd, under JAX, and the CPU seconds of both."""
    import celerite2.jax
    import jax

    jax.config.update("jax_enable_x64", True)

    def logp(log_parameters):
        scale, length, noise = jax.numpy.exp(log_parameters)
        kernel = celerite2.jax.terms.Matern32Term(sigma=scale, rho=length)
        gp = celerite2.jax.GaussianProcess(kernel)
        gp.compute(X[:, 0], diag=noise**2 * np.ones(len(y)), check_sorted=False)
        return gp.log_likelihood(y)

    both, point, taken = jax.jit(jax.value_and_grad(logp)), np.log([1.0, 1.7, 0.3]), []
    for _ in range(21):
        clock = time.process_time()
        value, slopes = jax.block_until_ready(both(point))
        taken.append(time.process_time() - clock)
    return value, slopes, min(taken)


def tinygp_exact(X, y, Xnew, kind):
    """The same by automatic differentiation."""
    import jax
    import jax.numpy as jnp
    import tinygp
    from scipy.optimize import minimize

    jax.config.update("jax_enable_x64", True)
    clock = time.perf_counter()
    x, center = jnp.asarray(X[:, 0]), y.mean()

    def process(log_parameters):
        scale, length, noise = jnp.exp(log_parameters)
        kernel = scale**2 * tinygp.kernels.quasisep.Matern32(scale=length)
        return tinygp.GaussianProcess(kernel, x, diag=noise**2, mean=center)

    value = jax.jit(jax.value_and_grad(lambda p: -process(p).log_probability(y)))
    found = minimize(lambda p: [np.asarray(v) for v in value(p)], np.log([1.0, 1.0, 0.3]), jac=True)
    conditioned = process(found.x).condition(y, jnp.asarray(Xnew[:, 0])).gp
    return conditioned.loc, np.sqrt(conditioned.variance), time.perf_counter() - clock


FITS = {
    fit.__name__: fit
    for fit in (
        gpytorch_svgp, gpboost_vecchia, gpboost_vif, gpboost_laplace, celerite2_exact,
        celerite2_gradient, tinygp_exact,
    )
}  # fmt: skip

if __name__ == "__main__":
    name, source, target = sys.argv[1:]
    problem = np.load(source)
    found = FITS[name](problem["X"], problem["y"], problem["Xnew"], str(problem["kind"]))
    np.savez(target, **dict(zip(("mean", "sd", "seconds"), found, strict=True)))
