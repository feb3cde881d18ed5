"""Readers of blocks of calls, whichever way a text is cut, and of calls that break their format."""
