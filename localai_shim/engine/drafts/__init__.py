"""Drafts: their sources, and whether they pay."""
