"""Measured times of passes and steps: the estimates that decide what runs."""
