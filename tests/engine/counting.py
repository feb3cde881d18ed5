"""Engines of which the prefilled tokens are counted, and what they should say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.models.text import TextModel
from localai_shim.types import GenerationRequest, Prompt, SamplingParams
from tests.engine.harness import GREEDY, Running, engine_for
from tests.engine.oracle import alone
from tests.tiny import VOCABULARY

KINDS = ["qwen3", "gemma3_text", "qwen3_next"]
"""Dense, sliding window, hybrid."""


def tokens(n: int, seed: int = 1) -> list[int]:
    return [(17 * seed + 7 * i + 11 * seed * i * i) % (VOCABULARY - 3) + 3 for i in range(n)]


class Counting:
    """An engine and how many tokens it has prefilled."""

    def __init__(self, engine: Engine[TextModel]) -> None:
        self.engine = engine

    @property
    def prefilled(self) -> int:
        return self.engine.stats().prefilled_tokens

    def ask(
        self, prompt: Prompt | Sequence[int], n: int = 6, sampling: SamplingParams = GREEDY
    ) -> tuple[list[int], int]:
        """What the engine says to a prompt, and how many tokens it prefilled for that."""
        before = self.prefilled
        if not isinstance(prompt, Prompt):
            prompt = Prompt(prompt)
        [said] = Running(self.engine, GenerationRequest(prompt, sampling, n)).finish()
        return said, self.prefilled - before


@contextmanager
def counting(kind: str, options: EngineOptions | None = None) -> Iterator[Counting]:
    engine = engine_for(kind, options)
    try:
        yield Counting(engine)
    finally:
        engine.close()


def expected(kind: str, prompt: Sequence[int], n: int = 6) -> list[int]:
    return alone(kind, tuple(prompt), n)


PER_TOKEN = 2 * 2 * 2 * 16 * 4  # tiny qwen3: layers, keys and values, heads, width, float32
