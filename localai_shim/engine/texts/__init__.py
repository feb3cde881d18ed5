"""Texts to embed and pairs to score, beside rows that decode."""
