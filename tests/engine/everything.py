"""A small model that generates, sees and embeds, and requests for all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.sinks import SyncSink
from localai_shim.models.loading import load_model
from localai_shim.types import EmbeddingRequest, Event, Failure, Token
from tests.engine.seeing import Seeing
from tests.engine.work.passes import Head
from tests.tiny import tiny


class Everything(Seeing):
    """Embeds as well: a text's vector is (its length, its first token)."""

    def __init__(self, loaded: Any) -> None:
        super().__init__(loaded)
        self.tasks, self.heads = ("generate", "embed"), {"embed": Head(self._encode)}

    def _encode(self, texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        return mx.array([[float(len(text)), float(text[0])] for text in texts])


def everything(options: EngineOptions | None = None) -> Engine[Everything]:
    """An engine of its own over such a model."""
    return Engine(lambda: Everything(load_model(str(tiny("qwen3")), {})), options)


class Texts:
    """One request for vectors and what came of it."""

    def __init__(self, engine: Engine[Any], texts: Sequence[Sequence[int]]) -> None:
        self.request, self.sink = EmbeddingRequest(texts), SyncSink()
        engine.submit([self.request], self.sink)

    def finish(self) -> list[list[float]]:
        """Wait for the vectors. Raises what it failed with."""
        event: Event = self.sink.get(60)[1]
        if isinstance(event, Failure):
            raise event.error
        assert isinstance(event, Token) and self.request.vectors is not None
        return [list(map(float, vector)) for vector in self.request.vectors]
