"""Plan of an answer, with its tools, format and thinking, the same for both APIs."""
