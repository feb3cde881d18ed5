"""Tools that OpenAI hosts, served by functions of the caller's program."""
