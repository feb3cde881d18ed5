"""POST /audio/speech: text -> speech."""
