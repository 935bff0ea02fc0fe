"""Periodic kernels with a fixed period: features that no parameter moves."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import Add, Cosine, Kron, Periodic

from pymc_scalable_gp.cov.fourier import fourier_coefficients, waves
from pymc_scalable_gp.cov.products import ProductTerm, product_terms
from pymc_scalable_gp.cov.queries import leaves, split_scale
from pymc_scalable_gp.utils.checks import check_kernel_values
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.graphs import as_scalar, depends_only_on, is_random
from pymc_scalable_gp.utils.internals import parts_of

# Share of the variance that the harmonics leave out at half the build's lengthscale; at a third, 100 times.
LEFT_OUT = 1e-10


@dataclass(frozen=True)
class WaveTerm:
    r"""Fourier series of a Periodic kernel of one column, its features' variances the coefficients.

    ``scale k(x, z) = sum_j v_j cos(2 pi j (x - z) / period)``, ``v = scale q(ls)``: cosines and sines with
    coefficients of variance v_j. `nodes` (1, 2) are the ends of the column.
    """

    term: ProductTerm
    kernel: Any
    harmonics: int = 0
    nodes: np.ndarray | None = None

    @property
    def rank(self) -> int:
        """Number of features r."""
        return 2 * self.harmonics + 1

    @property
    def _ls(self):
        return as_scalar(self.kernel.ls).astype("float64")

    def fit(self, X: np.ndarray, rank: int, point) -> "WaveTerm":
        """With the harmonics that inputs (n, d) need at `point`, and at most `rank` features."""
        most = max(rank - 1, 0) // 2
        q = evaluate([fourier_coefficients(self._ls / 2.0, most)], point)[0]
        check_kernel_values(q)
        needed = int(np.sum(1.0 - np.cumsum(q) > LEFT_OUT))
        column = X[:, self.term.dims[0]]
        nodes = np.array([[column.min(), column.max()]])
        return replace(self, harmonics=min(needed, most), nodes=nodes)

    def within(self, rank: int, probe: np.ndarray, point) -> tuple["WaveTerm", float, float]:
        """With at most `rank` features; its prior variance at probe rows, and that of its harmonics."""
        found = replace(self, harmonics=min(self.harmonics, max(rank - 1, 0) // 2))
        held = found.variances()[: found.harmonics + 1].sum()
        scale, held = evaluate([self.term.scale, held], point)
        return found, scale * len(probe), held * len(probe)

    def basis(self, X):
        """``1, cos(2 pi j x / period), sin(2 pi j x / period)`` (n, r)."""
        period = as_scalar(self.kernel.period)
        angle = 2.0 * np.pi * (X[:, self.term.dims[0]] - self.nodes[0, 0]) / period
        return pt.concatenate([pt.ones_like(X[:, :1]), *waves(angle, self.harmonics)], axis=1)

    def variances(self):
        """Prior variances (r,) of the coefficients."""
        q = fourier_coefficients(self._ls, self.harmonics)
        return self.term.scale * pt.concatenate([q, q[1:]])

    def roots(self):
        """Their square roots, with a gradient of zero where they are zero; NaN below."""
        variances = self.variances()
        none = pt.eq(variances, 0.0)
        return pt.switch(none, 0.0, pt.sqrt(pt.switch(none, 1.0, variances)))

    def features(self, X):
        """``basis * roots`` (n, r)."""
        return self.basis(X) * self.roots()

    def mixing(self):
        """The matrix (r, r) with ``features = basis @ mixing``."""
        return pt.diag(self.roots())


def split_waves(cov_func) -> list[ProductTerm | WaveTerm]:
    """Terms of a sum of products, by their series where periods are fixed; ValueError for other kernels."""
    summands = _summands(cov_func)
    found = [_wave_term(part) for part in summands]
    rest = [part for part, wave in zip(summands, found, strict=True) if wave is None]
    terms = product_terms(rest[0] if len(rest) == 1 else Add(rest)) if rest else []
    return [*terms, *(wave for wave in found if wave is not None)]


def _summands(cov_func) -> list:
    if isinstance(cov_func, Add):
        return [each for part in parts_of(cov_func) for each in _summands(part)]
    return [cov_func]


def _wave_term(cov_func) -> WaveTerm | None:
    """The series of a scaled Periodic kernel of one column, if its period is fixed."""
    _, kernels = split_scale(cov_func)
    if len(kernels) != 1 or type(kernels[0]) is not Periodic or len(kernels[0].active_dims) > 1:
        return None
    if not depends_only_on([pt.as_tensor_variable(kernels[0].period)]):
        return None
    return WaveTerm(product_terms(cov_func)[0], kernels[0])


def check_periods(cov_func) -> None:
    """Raise ValueError for a kernel with a free period, in a latent model.

    At a period other than that of the build, grid nodes may have the same phase, and the fixed basis
    becomes dependent: features change sign there, and with them f at fixed coefficients. The
    covariance does not change.
    """
    for leaf in leaves(cov_func):
        inner = getattr(leaf, "cov_func", None)  # of a warped or scaled kernel
        for part in parts_of(leaf) if isinstance(leaf, Kron) else [] if inner is None else [inner]:
            check_periods(part)
        name = {Periodic: "period", Cosine: "ls"}.get(type(leaf))
        if name is not None and is_random(pt.as_tensor_variable(getattr(leaf, name))):
            raise ValueError(
                f"{type(leaf).__name__} has a free {name}=, with which the latent density of GriefGP "
                "jumps: fix it, or use marginal_likelihood, or sgp.SKIPLatent (one or two "
                "inputs)"
            )
