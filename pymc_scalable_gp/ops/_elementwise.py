"""Elementwise loops and sums without temporaries, for NumPy and Numba."""

import re

import numpy as np
from numba.extending import overload

from pymc_scalable_gp.ops._numba import in_numba


def _twin(name, arguments, numpy, before, body, after, numbers=""):
    """A function of vectors for NumPy, and the loop over their entries that Numba takes for it.

    `body` is written with the vectors' names, which stand for entries in the loop; `numbers` are
    arguments without entries.
    """
    vectors = [v for v in re.findall(r"\w+", arguments) if v not in numbers.split()]
    entry = re.sub(rf"\b({'|'.join(vectors)})\b", r"\1[i]", body)
    source = f"def {name}({arguments}):\n    {numpy}\n\ndef loop({arguments}):\n    {before}\n"
    source += f"    for i in range({vectors[0]}.size):\n        {entry}\n    {after}\n"
    scope = {"np": np, "__name__": __name__}
    exec(source, scope)
    scope[name].__doc__ = f"``{body}`` for vectors."
    in_numba(scope[name])(scope["loop"])
    return scope[name]


def _assigned(name, arguments, body, numbers="", numpy=None):
    """With the first vector changed in place."""
    numpy = numpy or body.replace("out", "out[:]", 1)
    return _twin(name, arguments, numpy, "pass", body, "return None", numbers)


def _summed(name, arguments, term, numpy):
    """The sum of a term."""
    return _twin(name, arguments, f"return {numpy}", "total = 0.0", f"total += {term}", "return total")


def _held(name, condition, numpy):
    """Whether a condition holds of all entries."""
    body = f"good = good and {condition}"
    return _twin(name, "a", f"return bool({numpy})", "good = True", body, "return good")


multiply_by = _assigned("multiply_by", "out, factor", "out *= factor", "factor")
add = _assigned("add", "out, a", "out += a")
subtract = _assigned("subtract", "out, a", "out -= a")
add_multiple = _assigned("add_multiple", "out, factor, a", "out += factor * a", "factor")
add_product = _assigned("add_product", "out, a, b", "out += a * b")
add_square = _assigned("add_square", "out, scale, a", "out += scale * a * a", "scale")
subtract_from = _assigned("subtract_from", "out, a", "out = a - out", numpy="np.subtract(a, out, out=out)")
set_product = _assigned("set_product", "out, a, b", "out = a * b", numpy="np.multiply(a, b, out=out)")
set_ratio = _assigned("set_ratio", "out, a, b", "out = a / b", numpy="np.divide(a, b, out=out)")
feature_cotangent = _assigned(
    "feature_cotangent", "out, u, a, b, c, phi", "out = u * a - out * b - c * phi", "u",
    numpy="out *= -b; out += u * a - c * phi",
)  # fmt: skip
sum_product = _summed("sum_product", "a, b", "a * b", "np.dot(a, b)")
sum_product3 = _summed("sum_product3", "a, b, c", "a * b * c", "np.sum(a * b * c)")
sum_log = _summed("sum_log", "a", "np.log(a)", "np.sum(np.log(a))")
all_finite = _held("all_finite", "np.isfinite(a)", "np.all(np.isfinite(a))")
all_positive = _held(
    "all_positive", "a > 0.0 and np.isfinite(a)", "np.all(a > 0.0) and np.all(np.isfinite(a))"
)


def fill_from(out, a):
    """``out = a`` for a vector and an array without dimensions, or with one or all entries.

    A slice assigned in Numba compiles text for its error message.
    """
    out[:] = a


@overload(fill_from)
def _fill_from(out, a):
    def number(out, a):
        for i in range(out.size):
            out[i] = a.item()

    def vector(out, a):
        for i in range(out.size):
            out[i] = a[0] if a.size == 1 else a[i]

    return number if a.ndim == 0 else vector
