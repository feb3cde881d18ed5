"""Outputs of models that mix what families write."""
