"""Periodic kernels as Fourier series."""

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

# Coefficients below this are rounding, of the sums that they are computed by.
ROUNDING = 1e-15


def fourier_coefficients(ls: TensorVariable, harmonics: int) -> TensorVariable:
    r"""Variances (harmonics + 1,) of ``exp(-sin(u / 2)^2 / (2 ls^2)) ~ sum_j q_j cos(j u)``.

    ``q_j = c_j exp(-a) I_j(a)``, ``a = 1 / (4 ls^2)``, with c_0 = 1, else 2; the Bessel functions by the
    trapezoidal rule on the circle, exact to rounding where the harmonics hold most of the variance. Their
    sum is at most 1; those that are rounding are 0.
    """
    count = 4 * (harmonics + 8)
    u = 2.0 * np.pi * np.arange(count) / count
    weights = np.cos(np.outer(np.arange(harmonics + 1), u)) * 2.0 / count
    weights[0] /= 2.0
    q = pt.constant(weights) @ pt.exp(-pt.constant(np.sin(0.5 * u) ** 2) / (2.0 * ls**2))
    return pt.switch(q < ROUNDING, 0.0, q)  # NaN stays


def waves(angle: TensorVariable, harmonics: int) -> list[TensorVariable]:
    """Cosines and sines (n, harmonics) of 1 .. harmonics times an angle (n,)."""
    angles = angle[:, None] * pt.constant(np.arange(1.0, harmonics + 1.0))
    return [pt.cos(angles), pt.sin(angles)]
