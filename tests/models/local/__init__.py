"""Models that other programs have put on this machine."""
