"""One folder per method: a feature map and its public classes."""
