"""What keeps code under test from reaching out."""
