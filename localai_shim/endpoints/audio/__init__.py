"""/audio: speech from texts, and texts from speech."""
