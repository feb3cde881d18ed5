"""A failure at every boundary, under load: whose request fails with what, and that nothing else is touched."""
