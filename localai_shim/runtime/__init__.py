"""Engines that are loaded and shared, and the other things that clients share."""
