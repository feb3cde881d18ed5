"""A checkpoint's config: the names that upstream's classes read, and what they make of it."""
