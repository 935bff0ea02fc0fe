"""Scalable Gaussian processes for PyMC, with full posterior inference."""

# ruff: noqa: F403, F405
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

from pymc_scalable_gp.exported import load_predictor

if TYPE_CHECKING:
    from pymc_scalable_gp._public import *

__version__ = version("pymc_scalable_gp")

__all__ = [
    "CholQRMarginal",
    "ExactMarginal",
    "GriefGP",
    "InducingFit",
    "InducingSelection",
    "KMCGMarginal",
    "LowRankNormal",
    "RegularGrid",
    "RowStatistics",
    "SKIPLatent",
    "SKIPMarginal",
    "SoftKILatent",
    "SoftKIMarginal",
    "StateSpaceMarginal",
    "VecchiaLatent",
    "VecchiaMarginal",
    "compare_evidence",
    "cov",
    "fit_inducing",
    "linops",
    "load_predictor",
    "ops",
    "plot_check",
    "sample_importance",
    "subset_map",
    "suggest",
    "weights_prior",
]


def __getattr__(name):
    """Import PyMC with the first name that needs it: `load_predictor` does without, and starts at once."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    public = vars(import_module(f"{__name__}._public"))
    globals().update({each: public[each] for each in __all__ if each in public})
    return globals()[name]


def __dir__():
    return sorted({*globals(), *__all__})
