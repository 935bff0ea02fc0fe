"""Is the posterior right: the exact Gaussian process beside the approximate one, and rows left out.

In: a likelihood and posterior draws. Out: figures, a verdict in words, a picture. Knows the likelihoods,
not the GP objects that users call.
"""
