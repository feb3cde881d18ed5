"""GGUF files as checkpoints: checked before MLX reads them."""
