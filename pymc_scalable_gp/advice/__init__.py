"""Advice on the class and its settings, before a model is written."""
