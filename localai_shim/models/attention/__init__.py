"""Attention of upstream models that takes one position for all rows of a batch, by each row's position."""
