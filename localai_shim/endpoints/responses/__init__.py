"""/responses: creating responses, also in the background, and the stored ones."""
