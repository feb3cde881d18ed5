"""The command line: one module per command, on top of the clients. What is heavy is imported when it is needed."""
