"""What outlives a request: stored responses, conversations and chat completions."""
