"""Requests that take long before, in and behind the engine, and who is held up by them: nobody."""
