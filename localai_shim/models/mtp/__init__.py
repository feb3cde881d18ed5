"""Heads that were trained with a model to guess further tokens (multi-token prediction, MTP)."""
