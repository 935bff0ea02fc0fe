"""Values of a mean function as a vector."""

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable


def mean_vector(mean_func, X: TensorVariable) -> TensorVariable:
    """``mean_func(X)`` (n,), for functions that return a scalar, (n,) or one column (n, 1).

    ``pm.gp.mean.Linear`` with scalar coefficients returns a column, which would broadcast against the
    targets to an n x n matrix.

    Raises
    ------
    ValueError
        If the function returns more than one column, or more dimensions.
    """
    mean = pt.as_tensor_variable(mean_func(X)).astype("float64")
    if mean.ndim == 0 or (mean.ndim == 1 and mean.type.shape[0] == 1):
        return mean + pt.zeros_like(X[:, 0])
    if mean.ndim == 2 and mean.type.shape[1] in (1, None):
        return pt.specify_shape(mean, (None, 1))[:, 0]
    if mean.ndim != 1:
        raise ValueError(
            f"mean_func must give one value a row, shape (n,), got shape {mean.type.shape}: with "
            "pm.gp.mean.Linear, coeffs must have shape (d,) for X (n, d)"
        )
    return mean
