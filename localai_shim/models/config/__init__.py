"""A checkpoint's config: the names that the model's classes read, and checks of what they make of it."""
