"""One file a method: a feature map and its public classes."""
