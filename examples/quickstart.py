"""A first model: a landscape from 4000 noisy readings, with a hole in which nothing was measured.

python examples/quickstart.py [FILE.png]
"""

import sys
import time

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_scalable_gp as sgp


def height(X):
    """True height (100 m) at places X (n, 2), in km east and north."""
    east, north = X.T
    return np.sin(east) * np.cos(0.7 * north) + 0.3 * np.sin(1.5 * (east + north))


rng = np.random.default_rng(1)
X = rng.uniform(0, 10, (4200, 2))
X = X[np.hypot(*(X - [6, 5]).T) > 1.2][:4000]  # nothing is known inside this circle
y = height(X) + 0.2 * rng.standard_normal(len(X))
axis = np.linspace(0, 10, 30)
Xnew = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

began = time.perf_counter()
with pm.Model() as model:
    ell = pm.InverseGamma("ell", 3, 3, shape=2)
    eta = pm.HalfNormal("eta", 1)
    sigma = pm.HalfNormal("sigma", 1)

    gp = sgp.VecchiaMarginal(cov_func=eta**2 * pm.gp.cov.ExpQuad(2, ls=ell))
    gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    idata = sgp.sample_importance(random_seed=1)

print(gp.check(idata))  # is the approximation good, and what to change if it is not
prediction = gp.predict_posterior(Xnew, idata, num_samples=30, random_seed=1)  # "mean" and "sd"
seconds = time.perf_counter() - began

mean, sd = prediction["mean"].values, prediction["sd"].values
figure, panels = plt.subplots(1, 3, figsize=(12, 3.6), sharex=True, sharey=True, layout="constrained")
drawn = panels[0].scatter(*X.T, c=y, s=3)
figure.colorbar(drawn, ax=panels[0])
for panel, values in zip(panels[1:], (mean, sd), strict=True):
    drawn = panel.imshow(values.reshape(30, 30), origin="lower", extent=(0, 10, 0, 10))
    figure.colorbar(drawn, ax=panel)
for panel, title in zip(panels, ("4000 readings", "posterior mean", "posterior sd"), strict=True):
    panel.set(title=title, xlabel="east (km)", aspect="equal", xlim=(0, 10), ylim=(0, 10))
panels[0].set_ylabel("north (km)")
out = sys.argv[1] if len(sys.argv) > 1 else "quickstart.png"
figure.savefig(out, dpi=110)

truth, hole = height(Xnew), np.hypot(*(Xnew - [6, 5]).T) < 1.2
print(az.summary(idata, kind="stats", round_to=2).to_string())
print("\nAt 900 new places    RMSE  mean sd  90% intervals hold")
for name, at in {"among the readings": ~hole, "in the hole": hole}.items():
    error = mean[at] - truth[at]
    held = np.mean(np.abs(error) < 1.645 * sd[at])
    print(f"{name:18} {np.sqrt(np.mean(error**2)):7.3f} {sd[at].mean():8.3f} {held:19.0%}")
print(f"\nFrom the model to the predictions {seconds:.0f} s; the picture is in {out}")
