"""Engines that play what a test wrote, in place of a model."""
