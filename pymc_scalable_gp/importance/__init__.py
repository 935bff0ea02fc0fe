"""Posteriors of few parameters by adaptive importance sampling, for any PyMC model."""
