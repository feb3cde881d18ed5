"""Changes of a model between two steps, while requests run."""
