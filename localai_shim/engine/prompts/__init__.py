"""Prompts before they decode: prefill, features of media, and scores of a prompt's own tokens."""
