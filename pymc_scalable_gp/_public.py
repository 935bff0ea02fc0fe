"""The public names that need PyMC, imported when the first of them is asked for."""

# ruff: noqa: F401  __init__.py lists the names
import pymc_scalable_gp.cov as cov
import pymc_scalable_gp.linops as linops
import pymc_scalable_gp.ops as ops
from pymc_scalable_gp.advice.suggest import suggest
from pymc_scalable_gp.core.checking.picture import plot_check
from pymc_scalable_gp.core.fit.subset_map import subset_map
from pymc_scalable_gp.core.likelihoods.lowrank import LowRankNormal
from pymc_scalable_gp.core.rows.statistics import RowStatistics
from pymc_scalable_gp.importance.compare import compare_evidence
from pymc_scalable_gp.importance.sample import sample_importance
from pymc_scalable_gp.methods.cholqr.gp import CholQRMarginal
from pymc_scalable_gp.methods.cholqr.search import InducingSelection
from pymc_scalable_gp.methods.grief.gp import GriefGP, weights_prior
from pymc_scalable_gp.methods.kmcg.gp import KMCGMarginal
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid
from pymc_scalable_gp.methods.skip.gp import SKIPLatent, SKIPMarginal
from pymc_scalable_gp.methods.softki.gp import SoftKILatent, SoftKIMarginal
from pymc_scalable_gp.methods.softki.training import InducingFit, fit_inducing
from pymc_scalable_gp.methods.statespace.gp import StateSpaceMarginal
from pymc_scalable_gp.methods.vecchia.exact import ExactMarginal
from pymc_scalable_gp.methods.vecchia.gp import VecchiaMarginal
from pymc_scalable_gp.methods.vecchia.latent import VecchiaLatent
