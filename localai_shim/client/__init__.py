"""LocalOpenAI and AsyncLocalOpenAI, and all code between their calls and an endpoint."""
