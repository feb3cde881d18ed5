"""The ways in which models write tool calls: one description per family, from which reading, writing and grammars follow."""
