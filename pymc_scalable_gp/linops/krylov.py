"""The tridiagonal matrix of Lanczos steps, and what it tells of conjugate gradients."""

import numpy as np
import pytensor.tensor as pt


def tridiagonal(alpha, beta):
    """T (P, P) of Lanczos steps."""
    T = pt.diag(alpha)
    if alpha.type.shape[0] == 1:
        return T
    return T + pt.diag(beta[:-1], 1) + pt.diag(beta[:-1], -1)


def cg_residuals(alpha, beta) -> np.ndarray:
    """``|b - A x_j| / |b|`` of conjugate gradients on ``A x = b`` after j = 1..P steps, from T.

    Where A is singular to rounding, no step after that leads further, and the last one's stays.
    """
    pivot, length, found = 0.0, 1.0, []
    for j, (a, b) in enumerate(zip(alpha, beta, strict=True)):
        # Elimination on T: CG's residual is |b| times a product of ratios beta / pivot.
        pivot = a if j == 0 else a - beta[j - 1] ** 2 / pivot
        if pivot <= 0.0:
            break
        length *= b / pivot
        found.append(length)
    return np.array(found + [length] * (len(alpha) - len(found)))
