"""Checks of a checkpoint's files before a model is made of them, and what they say about it."""
