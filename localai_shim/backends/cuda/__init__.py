"""Forms for MLX's CUDA back end."""
