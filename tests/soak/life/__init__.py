"""Odd ends, interruptions and copies of processes in which clients run."""
