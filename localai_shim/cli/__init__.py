"""The command line: one module per command, on top of the clients. Large libraries are imported when needed."""
