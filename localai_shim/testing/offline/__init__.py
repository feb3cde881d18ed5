"""Guards that keep code under test from reaching out."""
