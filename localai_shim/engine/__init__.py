"""The continuous batcher: one thread, one model, many rows."""
