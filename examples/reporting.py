"""What the other examples print: steps and their seconds, scores, and whether draws can be relied on."""

import time

import arviz as az
import numpy as np

RHAT, ESS = 1.01, 100  # at most, to two decimals; at least, of each chain
KHAT = 0.7  # at most, of importance weights
Z90 = 1.6449  # half width of a central 90% interval, in standard deviations
COVERAGE = 0.80, 0.97  # of 90% intervals: errors at neighbouring places go together


def chains(idata, names=None) -> bool:
    """Print R-hat, ESS and divergences of the variables, and say so where they are not good enough."""
    posterior = idata["posterior"].to_dataset()
    posterior = posterior if names is None else posterior[list(names)]
    rhat = max(float(each.max()) for each in az.rhat(posterior).data_vars.values())
    ess = min(float(each.min()) for each in az.ess(posterior).data_vars.values())
    divergences = int(idata["sample_stats"]["diverging"].sum())
    count = posterior.sizes["chain"]
    print(f"R-hat at most {rhat:.2f}, ESS at least {ess:.0f}, {divergences} divergences")
    faults = [
        text
        for bad, text in (
            (not round(rhat, 2) <= RHAT, f"R-hat is above {RHAT}"),
            (not ess >= ESS * count, f"ESS is below {ESS} a chain"),
            (divergences > 0, "some steps diverged"),
        )
        if bad
    ]
    if faults:
        print(f"NOT to be relied on yet: {'; '.join(faults)}. Sample longer, or from a better start.")
    return not faults


def weights(idata) -> bool:
    """Print k-hat and the effective sample size of importance sampling; say so if they are too poor."""
    found = idata["posterior"].attrs
    khat, ess = found["khat"], found["ess"]
    print(f"k-hat {khat:.2f}, effective sample size {ess:.0f}")
    good = khat <= KHAT and ess >= ESS
    if not good:
        print("NOT to be relied on: sample with pm.sample, or with otherwise='nuts'.")
    return good


def coverage(error, sd, of) -> bool:
    """Print the empirical coverage of 90% intervals, and say so where it is too far from 90%."""
    covered = np.mean(np.abs(error) < 1.645 * np.asarray(sd))
    print(f"empirical coverage of 90% intervals of {of}: {covered:.1%}")
    good = COVERAGE[0] <= covered <= COVERAGE[1]
    if not good:
        print(f"NOT to be relied on: intervals are too {'narrow' if covered < 0.9 else 'wide'}.")
    return good


class Steps:
    """Say what happens, with the seconds since the start; time the steps."""

    def __init__(self):
        self.start = self.last = time.perf_counter()

    def __call__(self, text):
        now = time.perf_counter()
        print(f"[{now - self.start:5.0f} s] {text}", flush=True)

    def lap(self):
        """Seconds since the previous lap."""
        before, self.last = self.last, time.perf_counter()
        return self.last - before


def heading():
    """Print what the columns of `line` are."""
    print(f"\n{'':24}{'rows':>8}{'test RMSE':>12}{'90% cover':>11}{'seconds':>9}")


def line(label, y, mean, sd, rows="", seconds=None):
    """Print root mean square error, and the share of the rows inside their 90% interval."""
    rmse, cover = np.sqrt(np.mean((y - mean) ** 2)), np.mean(np.abs(y - mean) < Z90 * sd)
    spent = "" if seconds is None else f"{seconds:.0f}"
    print(f"{label:24}{rows:>8}{rmse:12.4g}{cover:11.1%}{spent:>9}")
