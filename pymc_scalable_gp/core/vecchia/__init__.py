"""Neighbours: what features leave of the kernel, in the sparse form of block Vecchia.

In: features, a kernel and an order of the rows. Out: a likelihood as those of `likelihoods`, predictions
from neighbours. Knows nothing of the GP objects, nor of how hyperparameters are found.
"""
