"""What is private of the SDK, and stand-ins for its parts."""
