"""The checkpoint that sees: its data, its training, and what it is worth."""
