"""Messages to template input to token ids. Runs on the caller's side, never on the engine thread."""
