"""Grammar constraints on what a row may generate: their sources, and how llguidance compiles and follows them."""

from __future__ import annotations


class GrammarError(ValueError):
    """A grammar is broken, cannot be satisfied or is too complex; the message says which and why."""


class TooComplexError(GrammarError):
    """A grammar goes beyond the limits on what compiling and following it may cost."""


class UnsatisfiableError(GrammarError):
    """Nothing satisfies a grammar."""
