"""/responses: creating them, in the background too, and those that were stored."""
