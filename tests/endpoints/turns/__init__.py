"""Turns, whose answers may have several rounds."""
