"""A constraint that allows a set of tokens, and a batch that the test steps itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from localai_shim.engine.decode.batch import Batch
from localai_shim.engine.row import Row
from localai_shim.engine.setup import Setup
from localai_shim.engine.sinks import SyncSink
from localai_shim.models.text import TextModel
from localai_shim.types import Event, GenerationRequest, Token
from tests.engine.harness import step_of


class Only:
    """Lets a set of tokens come; remembers what it was told and how often it was asked."""

    def __init__(self, allowed: Sequence[int], *, escape: int | None = None, idle_after: int | None = None) -> None:
        self.allowed, self.escape, self.idle_after = list(allowed), escape, idle_after
        self.taken: list[int] = []
        self.asked = 0

    @property
    def idle(self) -> bool:
        return self.idle_after is not None and len(self.taken) >= self.idle_after

    def mask(self, out: Any) -> bool:
        assert out.dtype == np.int32 and not out.any()
        self.asked += 1
        for token in self.allowed:
            out.view(np.uint32)[token // 32] |= np.uint32(1 << token % 32)
        return True

    def accept(self, token_id: int) -> bool:
        assert not self.idle, "a constraint that is idle is asked nothing more"
        self.taken.append(token_id)
        return False

    def adjust(self, logits: np.ndarray, out: list[int]) -> np.ndarray:
        """For the oracle: what is left of the logits."""
        if self.idle_after is not None and len(out) >= self.idle_after:
            return logits
        limited = np.full(len(logits), -np.inf)
        limited[self.allowed] = logits[self.allowed]
        if np.argmax(logits) == self.escape:
            limited[self.escape] = np.inf
        return limited


class Stepped:
    """A batch that the test steps itself, and each row's events."""

    def __init__(self, model: TextModel) -> None:
        self.model = model
        self.events: dict[Row, list[Event]] = {}
        self.batch = Batch(model, lambda row, event: self.events[row].append(event), Setup(None))

    def join(self, *requests: GenerationRequest) -> list[Row]:
        rows = [Row(r, SyncSink(), i, self.model) for i, r in enumerate(requests)]
        self.events.update((row, []) for row in rows)
        caches = [self.model.new_cache() for _ in rows]
        for row, cache in zip(rows, caches, strict=True):
            self.model.prefill(step_of(row.prompt_tokens[:-1], cache))
        self.batch.join(list(zip(rows, caches, strict=True)))
        return rows

    def tokens(self, row: Row) -> list[int]:
        return [event.id for event in self.events[row] if isinstance(event, Token)]
