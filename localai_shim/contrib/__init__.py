"""Extras that the OpenAI SDK has no method for: reranking, and a model for lm-evaluation-harness."""
