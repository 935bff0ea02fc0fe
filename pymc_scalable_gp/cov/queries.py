"""What a covariance is made of: its parts, columns and scale."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import (
    Add,
    BaseCovariance,
    Combination,
    Constant,
    Covariance,
    Exponentiated,
    Prod,
    Stationary,
    WhiteNoise,
)


def leaves(cov_func) -> list:
    """The kernels and scalars that a sum, product or power is made of."""
    if isinstance(cov_func, Combination):
        return [leaf for factor in cov_func._factor_list for leaf in leaves(factor)]
    if isinstance(cov_func, Exponentiated):
        return leaves(cov_func.kernel)
    return [cov_func]


def is_stationary(cov_func) -> bool:
    """Whether the kernel is a function of ``x - z`` alone."""
    return all(
        isinstance(leaf, Stationary | Constant) if isinstance(leaf, BaseCovariance) else True
        for leaf in leaves(cov_func)
    )


def refuse_white_noise(cov_func) -> None:
    """Raise if the kernel contains `WhiteNoise`, which no smooth feature can represent."""
    if any(isinstance(leaf, WhiteNoise) for leaf in leaves(cov_func)):
        raise ValueError(
            "cov_func contains WhiteNoise, which features cannot represent: give it as sigma="
        )


def used_columns(cov_func, d: int) -> np.ndarray:
    """Columns of X (n, d) that the kernel looks at; all for a constant kernel.

    Raises
    ------
    ValueError
        If one of them is beyond d.
    """
    kernels = [leaf for leaf in leaves(cov_func) if isinstance(leaf, Covariance)]
    columns = np.unique(np.concatenate([leaf.active_dims for leaf in kernels] or [np.arange(d)]))
    if columns.max() >= d:
        raise ValueError(f"the kernel uses column {columns.max()}, but X has {d} columns")
    return columns


def split_scale(cov_func) -> tuple[Any, list]:
    """Scalar factors of a kernel, multiplied, and the list of its other factors."""
    if isinstance(cov_func, Prod):
        parts = [split_scale(factor) for factor in cov_func._factor_list]
        scale = pt.as_tensor_variable(np.float64(1.0))
        for value, _ in parts:
            scale = scale * value
        return scale, [kernel for _, kernels in parts for kernel in kernels]
    if isinstance(cov_func, Constant):
        return cov_func.c, []
    if isinstance(cov_func, BaseCovariance):
        return 1.0, [cov_func]
    return cov_func, []


def describe(cov_func) -> str:
    """A covariance in a line, such as ``eta ** 2 * ExpQuad(3)``."""
    if isinstance(cov_func, Combination):
        sign = " * " if isinstance(cov_func, Prod) else " + "
        texts = [describe(factor) for factor in cov_func._factor_list]
        if isinstance(cov_func, Prod):
            pairs = zip(texts, cov_func._factor_list, strict=True)
            texts = [f"({t})" if isinstance(f, Add) else t for t, f in pairs]
        return sign.join(texts)
    if isinstance(cov_func, Exponentiated):
        return f"({describe(cov_func.kernel)}) ** {cov_func.power}"
    if isinstance(cov_func, Constant):
        return describe(cov_func.c)
    if isinstance(cov_func, Covariance):
        return f"{type(cov_func).__name__}({cov_func.input_dim})"
    if isinstance(cov_func, BaseCovariance):
        return type(cov_func).__name__
    return getattr(cov_func, "name", None) or "scale"
