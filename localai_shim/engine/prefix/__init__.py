"""The prefix cache: what finished prompts and turns left, for later ones to go on from."""
