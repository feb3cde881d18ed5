"""A client whose engine records how many rows run after each step: for tests of who frees a row, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from tests import inside
from tests.engine.harness import eventually
from tests.tiny import tiny

LONG: dict[str, Any] = {
    "model": "any",
    "messages": [{"role": "user", "content": "Go on for ever"}],
    "extra_body": {"ignore_eos": True},
}


class Watch:
    """Records how many rows run after each step of an engine."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.log: list[tuple[int, int]] = []
        self._loop = inside.loop(engine)
        self._step = self._loop.step
        self._loop.step = self._recorded

    def _recorded(self) -> None:
        self._step()
        stats = self._loop.stats()
        self.log.append((stats.steps, stats.running + stats.waiting))

    def steps_until_gone(self, since: int, rows: int) -> int:
        """Steps after `since` at whose end no more than `rows` rows were left."""
        assert eventually(lambda: any(step > since and left <= rows for step, left in self.log))
        return min(step for step, left in self.log if step > since and left <= rows) - since

    def stop(self) -> None:
        self._loop.step = self._step


@pytest.fixture(scope="module")
def path() -> str:
    # No two steps of a row that runs on as long as a test needs: a context that a test cannot fill.
    return str(tiny("qwen3", max_position_embeddings=200_000))


@pytest.fixture
def client(path: str) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(path) as client:
        yield client


@pytest.fixture
def watch(client: LocalOpenAI) -> Iterator[Watch]:
    engine = inside.engine(client)
    assert engine is not None
    _ = engine.model
    watch = Watch(engine)
    yield watch
    watch.stop()
