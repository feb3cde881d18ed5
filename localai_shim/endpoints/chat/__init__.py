"""/chat/completions: creating completions, and the stored ones."""
