"""Sampling: one pass over the batch's logits, with arrays of the rows' parameters."""
