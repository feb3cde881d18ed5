"""More than one process: one model over several, and replicas of a model on Ray."""
