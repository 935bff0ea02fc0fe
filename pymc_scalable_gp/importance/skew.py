"""Coordinates in which skew densities are less so."""

from typing import NamedTuple

import numpy as np

SKEWS = np.linspace(-1.0, 1.0, 41)
USUAL = 0.3  # prior standard deviation of a skew


class Skew(NamedTuple):
    """Coordinates ``y_j = c_j + s_j sinh(asinh(v_j) + e_j)`` with ``v_j = (x_j - c_j) / s_j``.

    Far from the centre c the map is ``v -> exp(+-e) v``: what is symmetric in y has a longer left tail in x
    where e > 0, a longer right one where e < 0 (Jones and Pewsey 2009). `skew` is e, `scale` s.
    """

    centre: np.ndarray
    scale: np.ndarray
    skew: np.ndarray

    @classmethod
    def none(cls, centre: np.ndarray) -> "Skew":
        """The coordinates as they are."""
        return cls(centre, np.ones(len(centre)), np.zeros(len(centre)))

    @classmethod
    def fitted(cls, points: np.ndarray, weights: np.ndarray, known: np.ndarray) -> "Skew":
        """Coordinates in which `points` (n, p) with weights of sum one are most like normal ones.

        Each e maximises ``ESS (mean(log dy/dx) - log sd(y)) - (e - known)^2 / (2 0.3^2)`` on a grid: the
        likelihood of a normal y, and a prior with which few points change little of what is `known` (p,).
        """
        centre = weights @ points
        scale = np.sqrt(weights @ (points - centre) ** 2)
        scale = np.where(scale > 0.0, scale, 1.0)
        ess, found = 1.0 / (weights**2).sum(), []
        grown = np.exp(np.arcsinh((points - centre) / scale))
        for e in SKEWS:
            up = np.exp(e) * grown
            y, twice_cosh = 0.5 * (up - 1.0 / up), up + 1.0 / up  # dy/dx but for what all e share
            variance = weights @ (y - weights @ y) ** 2
            log_sd = 0.5 * np.log(np.where(variance > 0.0, variance, 1.0))
            fit = weights @ np.log(twice_cosh) - log_sd
            found.append(ess * fit - 0.5 * ((e - known) / USUAL) ** 2)
        return cls(centre, scale, SKEWS[np.argmax(found, axis=0)])

    def forward(self, x: np.ndarray) -> np.ndarray:
        """The coordinates (n, p) of points `x` (n, p)."""
        v = (x - self.centre) / self.scale
        return self.centre + self.scale * np.sinh(np.arcsinh(v) + self.skew)

    def inverse(self, y: np.ndarray) -> np.ndarray:
        """The points (n, p) of coordinates `y` (n, p)."""
        return self._replace(skew=-self.skew).forward(y)

    def gradient(self, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Gradients (n, p) of a log density of y, from those of the density of x at points `x` (n, p)."""
        log_slope, change = self.slopes(x)
        return (gradient - change) * np.exp(-log_slope)

    def slopes(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log of each ``dy/dx`` (n, p), and its derivative."""
        v = (x - self.centre) / self.scale
        turned, square = np.arcsinh(v) + self.skew, 1.0 + v**2
        log_slope = np.log(np.cosh(turned)) - 0.5 * np.log(square)
        return log_slope, (np.tanh(turned) / np.sqrt(square) - v / square) / self.scale
