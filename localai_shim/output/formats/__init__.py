"""Ways of writing tool calls: one description per family, from which reading, writing and grammars follow."""
