"""Models that listen: Whisper."""
