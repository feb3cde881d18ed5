"""Fitting conversations to a chat template: trials, and what is changed."""
