"""The scripted model: its engine, tokenizer, clock and replies."""
