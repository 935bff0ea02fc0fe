"""Log densities of the targets with the function integrated out, and their observed variables.

In: features, targets and noise, or statistics of rows. Out: observed variables, the coefficients'
posterior, precision matrices, predictors. Knows nothing of the GP objects that users call.
"""
