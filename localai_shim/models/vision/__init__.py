"""Models that see and hear, through mlx-vlm."""
