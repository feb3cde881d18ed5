"""LocalOpenAI and AsyncLocalOpenAI, and all between a call of theirs and an endpoint."""
