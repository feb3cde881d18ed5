"""POST /audio/transcriptions and /audio/translations: speech -> text."""
