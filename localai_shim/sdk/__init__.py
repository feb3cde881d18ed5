"""Private names of the SDK, and stand-ins for its parts."""
