"""Bodies of requests, made of the SDK's own types and broken in a few places."""
