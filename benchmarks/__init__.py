"""What the client costs, as ratios to the bare model step measured in the same run."""
