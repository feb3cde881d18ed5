"""Syntaxes of the arguments of calls: each module describes one, reads it, and writes it."""
