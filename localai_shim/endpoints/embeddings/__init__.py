"""/embeddings: vectors of texts."""
