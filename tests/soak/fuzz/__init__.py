"""Fuzz: bodies, outputs of models, and model folders that nobody means well with."""
