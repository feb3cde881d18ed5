"""/embeddings and /rerank: vectors of texts, and scores of documents."""
