"""Objects that outlive a request: stored responses, conversations and chat completions."""
