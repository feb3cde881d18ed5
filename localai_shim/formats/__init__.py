"""Formats of calls and reasoning: detection, reading, writing, and grammars follow from one description per family."""
