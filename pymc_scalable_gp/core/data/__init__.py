"""What came in, checked once: rows, targets, noise, keywords, mean functions, posterior draws.

In: what users pass to a front end. Out: checked tensors with their present values, or an error in words.
Knows nothing of features, likelihoods or neighbours.
"""
