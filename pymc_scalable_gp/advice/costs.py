"""Operations and bytes of a density with its gradient, by class and settings.

The orders are those of the cost tables of each method's page. What an order leaves open is a factor a
class, fitted to compiled gradients: ``tests/benchmarks/bench_suggest.py`` prints the ratio of measured
to predicted seconds.
"""

import math
from typing import NamedTuple

from pymc_scalable_gp.advice.facts import Facts
from pymc_scalable_gp.advice.machine import Rates, Work
from pymc_scalable_gp.methods.kmcg.regular_grid import DENSE_AXIS

# Measured over predicted seconds: about each class' geometric mean over the sizes of bench_suggest.py.
FACTORS = {
    "ExactMarginal": 0.9, "VecchiaMarginal": 1.0, "VecchiaLatent": 1.7, "GriefGP": 1.2,
    "SKIPMarginal": 1.1, "SKIPLatent": 1.3, "SoftKIMarginal": 1.7, "SoftKILatent": 1.5,
    "KMCGMarginal": 5.0, "CholQRMarginal": 0.9,
}  # fmt: skip

# Seconds that the calls of any compiled density take.
OVERHEAD = 1.5e-5

# Seconds from a model to its first gradient, with empty caches: bench_first_use.py.
COMPILATION = 90.0

# A process with PyMC in it, before it has any data.
PROCESS = 0.6 * 2**30

# Passes over the rows that training SoftKI's points takes.
EPOCHS = 30


class Cost(NamedTuple):
    """Of one gradient, of what comes once before sampling, and numbers that are held."""

    work: Work
    numbers: float
    once: Work = Work()

    def seconds(self, class_name: str, rates: Rates) -> float:
        """Predicted seconds a gradient."""
        return OVERHEAD + FACTORS[class_name] * self.work.seconds(rates)

    def bytes(self, facts: Facts, rates: Rates) -> float:
        """Of all chains that run side by side, each with its own copy."""
        return rates.chains * (PROCESS + 8.0 * (self.numbers + 3.0 * facts.n * facts.d))


def exact(n) -> Cost:
    """A Cholesky factor and its inverse, five matrices."""
    return Cost(Work(cholesky=n**3, entries=2.0 * n**2), 5.0 * n**2)


def low_rank(n, r) -> Work:
    """Density of given features, and its gradient: two products, a small factor."""
    return Work(product=4.0 * n * r**2, cholesky=r**3, memory=6.0 * n * r)


def inducing(n, m) -> Work:
    """Features of inducing points with their gradient."""
    return Work(product=4.0 * n * m**2, cholesky=m**3, entries=2.0 * n * m)


def both(first: Work, second: Work) -> Work:
    """One after the other."""
    return Work(*(a + b for a, b in zip(first, second, strict=True)))


def grief(n, d, r) -> Cost:
    """Kernels between rows and some sixty nodes, products of d factors a feature, and their density."""
    features = Work(memory=3.0 * d * n * r, entries=60.0 * d * n)
    return Cost(both(features, low_rank(n, r)), 3.0 * n * r)


def grief_frozen(n, d, r) -> Cost:
    """Nothing of size n; the rows are summarised once."""
    work = Work(product=8.0 * r**3, cholesky=2.0 * r**3, memory=(60.0 + 3.0 * d) * r**2)
    return Cost(work, 8.0 * r**2, Work(product=4.0 * n * r**2, memory=d * n * r))


def grief_rotated(n, d, r) -> Cost:
    """Weights of orthogonal features."""
    return Cost(Work(memory=20.0 * r), r**2, Work(product=6.0 * n * r**2, memory=d * n * r))


def cholqr(n, m) -> Cost:
    """Inducing points among the rows; a swap or two for each comes first."""
    once = Work(product=160.0 * n * m**2, entries=128.0 * n * m)
    return Cost(both(inducing(n, m), low_rank(n, m)), 3.0 * n * m, once)


def cholqr_fixed(n, m) -> Cost:
    """Rows summarised once."""
    return Cost(Work(product=4.0 * m**3, cholesky=m**3), 4.0 * m**2, cholqr(n, m).once)


def vecchia(n, m, k, g) -> Cost:
    """Blocks of g rows given k neighbours, beside m inducing points."""
    blocks, p = n / g, min(g + k, n)
    local = Work(
        product=3.0 * blocks * p**2 * m, small=2.0 * blocks * p**3, entries=blocks * p**2,
        memory=4.0 * blocks * p**2,
    )  # fmt: skip
    features = both(inducing(n, m), low_rank(n, m)) if m else Work()
    search = Work(memory=400.0 * n * max(math.log2(n), 1.0), product=2.0 * n * m**2)
    return Cost(both(local, features), 5.0 * n * (k + g + m), search)


def softki(n, m) -> Cost:
    """A kernel between the points; training them comes first."""
    training = Work(product=40.0 * EPOCHS * n * m**2)
    return Cost(Work(product=6.0 * m**3, cholesky=m**3, entries=2.0 * m**2), 8.0 * m**2, training)


def skip(n, d, r) -> Cost:
    """A tree of roots, and the density of r^2 features."""
    tree = Work(product=4.0 * n * d * r**3, memory=130.0 * n * d * r)
    work = both(tree, low_rank(n, r**2))
    return Cost(work, 4.0 * d * n * r + 2.0 * n * r**2)


def kmcg(facts: Facts, steps, probes) -> Cost:
    """Steps of Lanczos from the targets and from each probe, forwards and backwards."""
    cells = math.prod(facts.grid)
    long = [size for size in facts.grid if size > DENSE_AXIS and facts.even]
    dense = [size for size in facts.grid if size not in long]
    once = Work(
        product=2.0 * cells * sum(dense) + 4.0 * facts.n * steps,
        fourier=sum(8.0 * cells * math.log2(2 * size) for size in long), memory=8.0 * cells,
    )  # fmt: skip
    products = 2.0 * (1 + probes) * steps
    return Cost(Work(*(products * count for count in once)), cells * (steps + 17.0))


def latent_features(n, d, r, is_free) -> Cost:
    """GriefGP's prior: a product with the features, made again where hyperparameters are free."""
    own = Work(memory=4.0 * n * r)
    made = Work(memory=5.0 * d * n * r, entries=60.0 * d * n) if is_free else Work()
    return Cost(both(own, made), 3.0 * n * r)


def latent_skip(n, d, r, is_free) -> Cost:
    """Roots, and rows of their product with the coefficients."""
    own = Work(product=4.0 * n * r**2, memory=4.0 * n * r)
    tree = Work(product=4.0 * n * d * r**3, memory=60.0 * n * d * r) if is_free else Work()
    return Cost(both(own, tree), 4.0 * d * n * r)


def latent_softki(n, m) -> Cost:
    """Weights that are known, and a kernel between the points."""
    own = Work(product=6.0 * m**3, cholesky=m**3, memory=4.0 * n * m, entries=2.0 * m**2)
    return Cost(own, n * m + 8.0 * m**2, softki(n, m).once)


def latent_inducing(n, m) -> Cost:
    """Inducing points alone."""
    return Cost(inducing(n, m), 4.0 * n * m)
