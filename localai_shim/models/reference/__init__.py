"""A model with random weights, and mlx-lm's own answers: what reports about a machine compare with."""
