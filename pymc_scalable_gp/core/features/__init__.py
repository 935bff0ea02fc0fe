"""Feature maps phi(x) with k~(x, z) = phi(x)' phi(z), their coefficients, and points to make them of.

In: checked inputs and a kernel. Out: feature matrices, what they miss of the kernel, inducing points.
Knows nothing of targets, noise or how many rows a likelihood has.
"""
