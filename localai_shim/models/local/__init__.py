"""Models that other programs have put on this machine: where they lie, and by what names."""
