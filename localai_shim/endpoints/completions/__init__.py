"""/completions, the legacy API."""
