"""Items of responses and conversations, as callers send them and as they are stored."""
