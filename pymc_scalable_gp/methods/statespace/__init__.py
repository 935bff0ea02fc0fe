"""State-space form: exact Gaussian processes of one input in linear time."""
