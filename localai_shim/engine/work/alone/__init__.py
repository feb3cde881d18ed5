"""Work that runs alone: one request at a time, by code that knows no batches."""
