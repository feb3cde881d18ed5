"""Forms for MLX's CPU back end on x86."""
