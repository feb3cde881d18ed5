"""Vector stores with files, and an engine whose embedding can be held up."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from localai_shim.types import EmbeddingRequest, Sink, Ticket, Work
from tests.engine.harness import eventually

PARIS = "Paris is the capital of France. It rains in May."
FRUIT = "Bananas are yellow and sweet."
CODE = "def parse_header(line): return line.split(':')"
ENDED = ("completed", "failed", "cancelled")
POLL: Any = {"poll_interval_ms": 5}


class HeldEngine(ScriptedEngine):
    """Keeps requests for vectors until they are released."""

    def __init__(self, *script: Any, **options: Any) -> None:
        super().__init__(*script, **options)
        self.reached = threading.Event()
        self._is_held = False
        self._kept: list[tuple[Sequence[Work], Sink, Ticket | None]] = []

    def hold(self) -> None:
        self._is_held = True
        self.reached.clear()

    def release(self) -> None:
        self._is_held = False
        while self._kept:
            super().submit(*self._kept.pop(0))

    def submit(self, works: Sequence[Work], sink: Sink, ticket: Ticket | None = None) -> Ticket:
        if not self._is_held or not isinstance(works[0], EmbeddingRequest):
            return super().submit(works, sink, ticket)
        self._kept.append((works, sink, ticket))
        self.reached.set()
        return ticket or Ticket()


def upload(client: LocalOpenAI, text: str | bytes = PARIS, name: str = "paris.md") -> str:
    """The ID of a new file."""
    content = text.encode() if isinstance(text, str) else text
    return client.files.create(file=(name, content), purpose="assistants").id


def add(client: LocalOpenAI, store: str, text: str | bytes = PARIS, name: str = "paris.md", **more: Any) -> Any:
    """A new file in a vector store, which has been embedded or has failed."""
    return client.vector_stores.files.create_and_poll(upload(client, text, name), vector_store_id=store, **more, **POLL)


def ended(client: LocalOpenAI, store: str, file: str) -> Any:
    """The file once it has ended."""
    assert eventually(lambda: client.vector_stores.files.retrieve(file, vector_store_id=store).status in ENDED)
    return client.vector_stores.files.retrieve(file, vector_store_id=store)


def names(found: Any) -> list[str]:
    """Names of the files of results."""
    return [each.filename for each in found.data]
