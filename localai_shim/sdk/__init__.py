"""Private names of the SDK, and replacements of its parts."""
