"""Parts that depend on a machine: finding it, its memory, and the forms that are fast on it."""
