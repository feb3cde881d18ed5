"""Deciding what a step runs: the queue, admission, and what work takes how long."""
