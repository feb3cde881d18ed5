"""The work of an engine: one queue, a scheduler that names the next piece, and a runner that runs it."""
