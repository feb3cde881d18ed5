"""Cassettes: what a model answered, recorded in a file that people can read, and played again without it.

from localai_shim.testing.cassettes.engine import play_cassette

with play_cassette("story.jsonl", record_mode="once", source=openai.OpenAI()) as client:
    client.responses.create(model="gpt-4o", input="Tell me a story.")
"""
