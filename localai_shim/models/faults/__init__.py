"""Faults of mlx-lm's models, and what mends them."""
