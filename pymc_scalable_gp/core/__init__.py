"""What every method shares: the front ends, their likelihoods and predictions."""
