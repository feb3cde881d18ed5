"""Results made of hidden states: vectors, scores, and the last token's logits."""
