"""Files of weights: what is in them, without loading them."""
