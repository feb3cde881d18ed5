"""The only code that imports mlx_lm or mlx_vlm."""
