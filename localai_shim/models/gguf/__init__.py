"""GGUF files, presented as the folders that mlx-lm loads."""
