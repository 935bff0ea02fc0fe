"""Whether draws can be relied on: printed by the other examples."""

import arviz as az
import numpy as np

RHAT, ESS = 1.01, 100  # at most, to two decimals; at least, of each chain
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
        print(
            f"NOT to be relied on yet: {'; '.join(faults)}. Sample longer, or from a better start."
        )
    return not faults


def coverage(error, sd, of) -> bool:
    """Print the empirical coverage of 90% intervals, and say so where it is too far from 90%."""
    covered = np.mean(np.abs(error) < 1.645 * np.asarray(sd))
    print(f"empirical coverage of 90% intervals of {of}: {covered:.1%}")
    good = COVERAGE[0] <= covered <= COVERAGE[1]
    if not good:
        print(f"NOT to be relied on: intervals are too {'narrow' if covered < 0.9 else 'wide'}.")
    return good
