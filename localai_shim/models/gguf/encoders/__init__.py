"""Kinds of vision encoders in GGUF files ("mmproj"), one description each."""
