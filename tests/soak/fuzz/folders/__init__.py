"""Model folders that lie, are broken or mean harm: each ends in an answer or in an error that names it."""
