"""An instance of every Op of the package, the shapes that its inputs may have, and tensors of them."""

import numpy as np
import pytensor.tensor as pt
import pytest

import pymc_scalable_gp as sgp
from pymc_scalable_gp.linops import Diagonal
from pymc_scalable_gp.ops._base import GufuncOp, parse_signature
from pymc_scalable_gp.ops._krylov_products import Products

PRODUCTS = Products.of(Diagonal(pt.vector("diagonal", shape=(4,))), 4, 2)

SUM_OF_PRODUCTS = (("Matern32",), ("ExpQuad", "Matern52")), 2

# Arguments of those that need some.
ARGUMENTS = {
    "InverseCholesky": (1e-10,),
    "KroneckerLogp": (2,),
    "KroneckerLogpGrad": (2,),
    "KroneckerTurn": (2,),
    "LowRankLogpGrad": ("DTC",),
    "StationaryKernel": ("Matern32",),
    "StationarySlope": ("Matern32",),
    "StationaryFactor": SUM_OF_PRODUCTS,
    "StationaryFactorGrad": SUM_OF_PRODUCTS,
    "StationaryFeatures": ("Matern32",),
    "StationaryFeaturesGrad": ("Matern32",),
    "BlockLogp": (2,),
    "BlockLogpGrad": (2,),
    "StationaryBlocks": SUM_OF_PRODUCTS,
    "StationaryBlocksGrad": SUM_OF_PRODUCTS,
    "StationaryLogp": SUM_OF_PRODUCTS,
    "StationaryLogpGrad": SUM_OF_PRODUCTS,
    "VecchiaFactor": (2,),
    "VecchiaFactorGrad": (2,),
    "SoftmaxInterpolationGrad": (1,),
    "SegmentGram": (3,),
    "SegmentTimes": (3,),
    "NumericGram": (np.outer,),
    **dict.fromkeys(
        ("MarkovLogp", "MarkovSlopes", "MarkovSolve", "MarkovColor", "MarkovSmooth"),
        ((1, 0), (1, 1), (1, 2)),
    ),
    "Lanczos": (PRODUCTS, 2),
    "LanczosAdjoint": (PRODUCTS, (0,)),
    "StochasticLogdet": (PRODUCTS, 2, (0,)),
}


def subclasses(cls):
    for each in cls.__subclasses__():
        yield from subclasses(each)
        yield each


def all_ops():
    for cls in sorted(set(subclasses(GufuncOp)), key=lambda cls: cls.__name__):
        public = cls.__module__.startswith(sgp.__name__) and not cls.__name__.startswith("_")
        if public and hasattr(cls, "gufunc_signature") and not cls.__abstractmethods__:
            arguments = ARGUMENTS.get(cls.__name__, ())
            yield pytest.param(cls(*arguments), id=cls.__name__)
            if arguments is SUM_OF_PRODUCTS:
                yield pytest.param(cls(*arguments, moving=True), id=f"{cls.__name__} moving")


def shapes_of(op):
    """A shape for each input, lengths all different, and the occurrences (input, axis) of each name."""
    parameters = op.products.matmat.inputs[1:] if hasattr(op, "products") else []
    own = len(getattr(op, "own_inputs", ()))
    like = [pt.scalar()] * own + parameters if own else [pt.vector()] * 20
    needed, _ = parse_signature(op.signature(like))
    lengths = dict(op.lengths())
    for name in dict.fromkeys(name for names in needed for name in names):
        lengths.setdefault(name, 4 + len(lengths))
    lengths |= dict(op.summed(lengths))
    places = {}
    for i, names in enumerate(needed):
        for axis, name in enumerate(names):
            places.setdefault(name, []).append((i, axis))
    return [tuple(lengths[name] for name in names) for names in needed], places


def tensors_of(op):
    shapes, _ = shapes_of(op)
    return [
        pt.tensor(dtype="int64" if i in op.discrete else "float64", shape=(None,) * len(shape))
        for i, shape in enumerate(shapes)
    ]
