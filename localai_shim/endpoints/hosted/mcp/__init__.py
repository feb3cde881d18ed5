"""`mcp` tools of the Responses API: tools of servers that the caller's program holds, or that a URL names."""
