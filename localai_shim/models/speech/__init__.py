"""Whisper, and models of mlx-audio that speak or write down speech."""
