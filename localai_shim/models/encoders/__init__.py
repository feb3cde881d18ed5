"""Models that embed texts or score pairs."""
