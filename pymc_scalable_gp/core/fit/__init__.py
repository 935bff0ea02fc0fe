"""Free variables of a model as a flat vector, and the mode on a subset of rows.

In: a model or a kernel, and rows. Out: hyperparameters as values by name. Knows nothing of the
approximation that they are for.
"""
