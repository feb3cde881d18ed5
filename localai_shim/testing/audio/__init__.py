"""Audio of scripted clients: replies to requests for transcriptions and for speech, and their files."""
