"""Many rows seen once: the triangle of [features | mean design | y], and statistics as a value.

In: rows in blocks, from memory, disk, streams or Dask, and functions of them. Out: triangular factors
and statistics that can be merged, saved and loaded. Knows nothing of priors, noise or log densities.
"""
