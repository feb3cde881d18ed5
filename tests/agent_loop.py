"""Clients of tiny models whose template has tools and thoughts, as agents use them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from localai_shim import LocalOpenAI
from localai_shim.engine.engine import EngineOptions
from tests.engine.harness import engine_for
from tests.tiny import THINKING

KINDS = ["qwen3", "gemma3_text", "qwen3_next"]
"""Dense, sliding window, hybrid."""


@contextmanager
def client_of(kind: str, options: EngineOptions | None = None) -> Iterator[LocalOpenAI]:
    engine = engine_for(kind, options, template=THINKING, max_position_embeddings=16384)
    try:
        with LocalOpenAI(engine=engine) as client:
            yield client
    finally:
        engine.close()
