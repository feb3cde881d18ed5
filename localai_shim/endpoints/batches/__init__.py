"""Batches of requests: https://platform.openai.com/docs/api-reference/batch."""
