"""Readers of calls in each way of writing arguments, whichever way a text is cut."""
