"""Token events to text, and what OpenAI's objects say about it. Pure Python, sans-IO, usable without a model."""
