"""/chat/completions: creating them, and those that were stored."""
