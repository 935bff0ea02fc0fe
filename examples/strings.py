"""A Gaussian process on strings: binding strengths of DNA sequences, inducing sequences by CholQR.

python examples/strings.py [--rows N] [--points M]

Simulates sequences in which short motifs raise or lower a measured strength. The spectrum kernel compares
them by their substrings of four letters; CholQR chooses the inducing sequences; NUTS samples the
kernel's scale and the noise at a cost that does not depend on the number of sequences. Half a minute.
"""

import argparse

import arviz as az
import numpy as np
import pymc as pm
from reporting import chains, coverage

import pymc_scalable_gp as sgp


def simulate(n, rng):
    """Sequences of 60 letters with three of six motifs, and their strengths."""
    motifs = ["".join(rng.choice(list("ACGT"), 8)) for _ in range(6)]
    weights, sequences, y = rng.standard_normal(6), [], np.zeros(n)
    for i in range(n):
        letters = "".join(rng.choice(list("ACGT"), 60))
        for place, k in zip(rng.permutation(6)[:3] * 10, rng.permutation(6)[:3], strict=True):
            letters = letters[:place] + motifs[k] + letters[place + 8 :]
            y[i] += weights[k]
        sequences.append(letters)
    return sequences, y + 0.1 * rng.standard_normal(n)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--points", type=int, default=60)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    sequences, y = simulate(args.rows, rng)
    places, train = np.arange(args.rows)[:, None], np.arange(args.rows) < 3 * args.rows // 4
    with pm.Model() as model:
        eta, sigma = pm.HalfNormal("eta", 2), pm.HalfNormal("sigma", 1)
        cov = eta**2 * sgp.cov.Spectrum(sequences, k=4)
        mean = pm.gp.mean.Constant(y[train].mean())
        gp = sgp.CholQRMarginal(mean_func=mean, cov_func=cov, approx="DTC", n_inducing=args.points)
        chosen = gp.select_inducing(places[train], y[train], sigma)
        gp.marginal_likelihood("y", X=places[train], y=y[train], sigma=sigma)
        idata = pm.sample(chains=2, random_seed=1)
    print(f"objective {chosen.objective[0]:.0f} -> {chosen.objective[-1]:.0f}, "
          f"{chosen.accepted.sum()} of {chosen.proposed.sum()} swaps; "
          f"likelihood: {gp.likelihood_path}")  # fmt: skip
    print(az.summary(idata).to_string())
    chains(idata)
    found = gp.predict_posterior(
        places[~train], idata, pred_noise=True, num_samples=200, random_seed=2, model=model
    )
    error = y[~train] - found["mean"].values
    print(f"held out: RMSE {np.sqrt(np.mean(error**2)):.3f} (sd of the target {y.std():.3f})")
    if not coverage(error, found["sd"], "held-out strengths"):
        print("What the points miss is counted as noise, and again in each prediction: take more of them.")


if __name__ == "__main__":
    main()
