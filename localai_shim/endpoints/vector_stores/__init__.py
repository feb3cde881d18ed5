"""Vector stores: https://platform.openai.com/docs/api-reference/vector-stores."""
