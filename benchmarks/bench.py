"""What every part of the benchmarks is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

from localai_shim import AsyncLocalOpenAI, LocalOpenAI

from .bare import BareModel
from .workload import Prompts


@dataclass(slots=True)
class Bench:
    """The model, loaded twice: by mlx-lm for the calling thread, and by the clients, which share an engine."""

    folder: Path
    """Where the model is."""
    config: dict[str, Any]
    model: Any
    """mlx-lm's."""
    tokenizer: Any
    """mlx-lm's wrapper."""
    bare: BareModel
    sync: LocalOpenAI
    ours: AsyncLocalOpenAI
    prompts: Prompts
    """Of `prompt_tokens` tokens."""
    new_tokens: int
    streams: list[int]
    """Numbers of concurrent streams to measure."""
    repeats: int
    quick: bool
    vocabulary: int
    vision_size: str = "small"
    """Of the model that the part `vision` makes."""
    server: tuple[openai.AsyncOpenAI, str] | None = None
    """One more to compare decoding with, and the model name to send to it."""

    def prompts_of(self, length: int, seed: int) -> Prompts:
        """Prompts of another length, in tokens; another seed gives other ones."""
        return Prompts(self.tokenizer, length, seed=seed)
