"""An engine whose thread stands between two steps, while a test has several things wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from localai_shim import LocalOpenAI
from tests import inside
from tests.engine.harness import Gate, eventually


def engine_of(client: LocalOpenAI) -> Any:
    """The engine of a client with one model, once that is loaded."""
    engine: Any = inside.engine(client)
    _ = engine.model
    return engine


@contextmanager
def standing(client: LocalOpenAI) -> Iterator[Callable[[int], None]]:
    """The engine does nothing meanwhile; what is yielded waits until so many messages are there for it, in their
    order."""
    engine, gate = engine_of(client), Gate(lambda: True)
    engine._change(gate)
    gate.wait()

    def queued(count: int) -> None:
        assert eventually(lambda: engine._inbox.qsize() >= count)

    try:
        yield queued
    finally:
        gate.open()
