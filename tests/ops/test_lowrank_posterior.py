import numpy as np
import pytensor.tensor as pt
import pytest
from marks import in_back_ends

from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.lowrank_posterior import LowRankPosterior, lowrank_posterior
from pymc_scalable_gp.testing import check_op

SIZES = [(7, 3), (3, 5), (1, 1), (0, 2), (6, 1)]


def inputs(n, r, seed=0):
    rng = np.random.default_rng([seed, n, r])
    phi = rng.standard_normal((n, r))
    # Some rows miss variance, the others have more than the kernel: FITC's maximum takes both sides.
    kdiag = (phi**2).sum(axis=1) * rng.choice([0.5, 3.0], n) + 0.1
    return (
        phi, rng.uniform(0.5, 2.0, r), rng.uniform(0.3, 1.0, n), rng.standard_normal(n), kdiag,
    )  # fmt: skip


def dense(phi, weights, noise, residual, kdiag, approx, lib):
    """The same terms from their definitions, in NumPy or PyTensor."""
    missing = lib.maximum(kdiag - (phi**2 * weights).sum(axis=1), 0.0)
    D = noise + missing * float(approx == "FITC")
    root_w = lib.sqrt(weights)
    scaled = phi * root_w / lib.sqrt(D)[:, None]
    B = scaled.T @ scaled + lib.eye(weights.shape[0])
    L = (np if lib is np else pt).linalg.cholesky(B)
    root = (np if lib is np else pt).linalg.inv(L) * root_w
    coef = root.T @ (root @ (phi.T @ (residual / D)))
    return (residual - phi @ coef) / D, coef, root, D


@in_back_ends
@pytest.mark.parametrize(
    "approx", ["DTC", *(pytest.param(a, marks=pytest.mark.slow) for a in ("FITC", "VFE"))]
)
def test_every_term_has_its_gradient(approx, modes):
    def build(*tensors):
        phi, weights, noise, residual, kdiag = tensors
        found = lowrank_posterior(phi, noise, residual, weights=weights, kdiag=kdiag, approx=approx)
        return found[1:]

    check_op(
        LowRankPosterior, build, lambda *a: dense(*a, approx, np), [inputs(*s) for s in SIZES],
        twin=lambda *a: [1.0 * x for x in dense(*a, approx, pt)],  # none behind another
        modes=modes, jax_cases=1 if approx == "DTC" else 3,  # each shape is compiled anew
    )  # fmt: skip


def test_scalar_noise_and_the_density():
    def build(phi, noise, residual):
        found = lowrank_posterior(phi, noise[0], residual)
        plain = lowrank_logp(phi, noise[0], residual)
        return found.logp + found.coef.sum(), plain.logp + found.root.sum()

    def reference(phi, noise, residual):
        n, r = phi.shape
        _, coef, root, D = dense(phi, np.ones(r), np.full(n, noise[0]), residual, np.zeros(n), "DTC", np)
        S = phi @ phi.T + np.diag(D)
        logp = -0.5 * (
            residual @ np.linalg.solve(S, residual) + np.linalg.slogdet(S)[1] + n * np.log(2.0 * np.pi)
        )
        return np.array(logp + coef.sum()), np.array(logp + root.sum())

    rng = np.random.default_rng(3)
    cases = [(rng.standard_normal((n, r)), np.array([0.4]), rng.standard_normal(n)) for n, r in SIZES[:3]]
    check_op(LowRankPosterior, build, reference, cases, modes=(), jax_cases=0)
