"""What an answer may be: its plan, tools, format and thinking, the same for both APIs."""
