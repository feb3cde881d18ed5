"""The prefix cache: what prompts and finished turns left, for later prompts to start from."""
