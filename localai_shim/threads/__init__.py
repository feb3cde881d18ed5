"""Threads that work for callers, the time that callers give them, and panics of libraries on them."""
