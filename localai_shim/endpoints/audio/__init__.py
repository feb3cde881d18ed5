"""POST /audio/transcriptions and /audio/translations: files of speech -> text, on Whisper models."""
