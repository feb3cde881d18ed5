"""Steps of the decode batch."""
