"""Models of mlx-audio that speak, or write down speech."""
