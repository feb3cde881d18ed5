"""Engines that are loaded and shared, and what clients share beside them."""
