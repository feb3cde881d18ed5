"""LoRA adapters, any of them on any row of a batch."""
