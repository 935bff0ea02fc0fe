"""Scalable Gaussian processes for PyMC, with full posterior inference."""

from importlib.metadata import version

from pymc_scalable_gp import cov, linops, ops
from pymc_scalable_gp.distribution import LowRankNormal
from pymc_scalable_gp.inducing import InducingFit, fit_inducing
from pymc_scalable_gp.methods.cholqr import CholQRMarginal
from pymc_scalable_gp.methods.grief import GriefGP, weights_prior
from pymc_scalable_gp.methods.kmcg import KMCGMarginal
from pymc_scalable_gp.methods.skip import SKIPLatent, SKIPMarginal
from pymc_scalable_gp.methods.softki import SoftKILatent, SoftKIMarginal
from pymc_scalable_gp.regular_grid import RegularGrid
from pymc_scalable_gp.selection import InducingSelection
from pymc_scalable_gp.start import subset_map

__version__ = version("pymc_scalable_gp")

__all__ = [
    "CholQRMarginal",
    "GriefGP",
    "InducingFit",
    "InducingSelection",
    "KMCGMarginal",
    "LowRankNormal",
    "RegularGrid",
    "SKIPLatent",
    "SKIPMarginal",
    "SoftKILatent",
    "SoftKIMarginal",
    "cov",
    "fit_inducing",
    "linops",
    "ops",
    "subset_map",
    "weights_prior",
]
