"""Grammars of tool calls, from the descriptions of their formats."""
