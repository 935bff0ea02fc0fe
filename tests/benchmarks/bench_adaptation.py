"""nutpie's low-rank mass matrix beside its default, for three latent models and three lengths of tuning.

    python tests/benchmarks/bench_adaptation.py [--quick]

Two chains one after the other, 500 draws each. R-hat is the largest, "ess" the smallest bulk effective
sample size, of hyperparameters and coefficients; "per 1000" is that size for each 1000 gradients of the
run, tuning included. None of the columns depends on how fast the machine is.
"""

import sys

import numpy as np
from _common import arguments, table

CHAINS, DRAWS = 2, 500
TUNING = (300, 500, 1000)
ADAPTATIONS = {"default": "diag", "low rank": "low_rank"}


def plane(n, d):
    """Inputs, and a smooth log rate of them."""
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (n, d))
    return X, np.sin(2.0 * X[:, 0]) + np.cos(1.5 * X[:, 1])


def skip(pm, sgp, cov, X, rng, f):
    """Counts in the plane."""
    latent = sgp.SKIPLatent(cov_func=cov, rank=12).prior("f", X=X)
    pm.Poisson("y", pm.math.exp(latent), observed=rng.poisson(np.exp(f)))


def grief(pm, sgp, cov, X, rng, f):
    """Yes or no, which says little of each coefficient."""
    latent = sgp.GriefGP(cov_func=cov, rank=100).prior("f", X=X)
    pm.Bernoulli("y", logit_p=latent, observed=rng.random(len(f)) < 1.0 / (1.0 + np.exp(-f)))


def vecchia(pm, sgp, cov, X, rng, f):
    """Counts with more variance than a Poisson's."""
    latent = sgp.VecchiaLatent(cov_func=cov, n_inducing=50, neighbors=None).prior("f", X=X)
    alpha = pm.HalfNormal("alpha", 5.0)
    drawn = rng.poisson(np.exp(f) * rng.gamma(3.0, 1.0 / 3.0, len(f)))
    pm.NegativeBinomial("y", mu=pm.math.exp(latent), alpha=alpha, observed=drawn)


# What makes the likelihood, rows and inputs.
MODELS = {
    "SKIPLatent, counts": (skip, 2000, 2), "GriefGP, yes or no": (grief, 500, 3),
    "VecchiaLatent, overdispersed counts": (vecchia, 500, 2),
}  # fmt: skip


def compiled(make, n, d):
    """One of the models, for nutpie."""
    import nutpie
    import pymc as pm

    import pymc_scalable_gp as sgp

    X, f = plane(n, d)
    with pm.Model() as model:
        ell, eta = pm.InverseGamma("ell", 3, 3, shape=d), pm.HalfNormal("eta", 1.0)
        cov = eta**2 * pm.gp.cov.ExpQuad(d, ls=ell)
        make(pm, sgp, cov, X, np.random.default_rng(1), f)
    free = [v.name for v in model.free_RVs]
    return nutpie.compile_pymc_model(model, var_names=free)


def run(model, tune, draws, adaptation):
    """R-hat, divergences, effective sample size, and that for 1000 gradients."""
    import arviz as az
    import nutpie

    idata = nutpie.sample(
        model, draws=draws, tune=tune, chains=CHAINS, cores=1, seed=1, adaptation=adaptation,
        progress_bar=False,
    )  # fmt: skip
    draws = idata["posterior"].to_dataset()
    rhat = max(float(v.max()) for v in az.rhat(draws).data_vars.values())
    ess = min(float(v.min()) for v in az.ess(draws).data_vars.values())
    groups = [idata[name] for name in ("warmup_sample_stats", "sample_stats")]
    gradients = sum(int(group["n_steps"].sum()) for group in groups)
    diverging = int(idata["sample_stats"]["diverging"].sum())
    return rhat, diverging, ess, 1000.0 * ess / gradients


def main():
    """Run what the command line asks for."""
    quick = arguments(__doc__).parse_args().quick
    rows = []
    for label, (make, n, d) in MODELS.items():
        model = compiled(make, 200 if quick else n, d)
        for tune in TUNING[: 1 if quick else None]:
            for name, adaptation in ADAPTATIONS.items():
                found = run(model, tune, 100 if quick else DRAWS, adaptation)
                rows.append((label, tune, name, *found))
                print(*rows[-1], file=sys.stderr, flush=True)
    header = ("", "tuning", "mass matrix", "R-hat", "divergences", "ess", "per 1000")
    table("three latent models", header, rows)


if __name__ == "__main__":
    main()
