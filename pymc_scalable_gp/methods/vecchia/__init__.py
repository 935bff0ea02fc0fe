"""Features and neighbours: near-exact Gaussian processes."""
