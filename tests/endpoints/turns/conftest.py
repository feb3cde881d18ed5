"""Clients whose answers search once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.turns.asking import Door
from tests.endpoints.turns.rounds import Searches, decide, install
from tests.engine.harness import eventually


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Searches]:
    made = Searches()
    install(monkeypatch, made)
    yield made
    if isinstance(made.search, Door):
        made.search.opened.set()


@pytest.fixture
def door(searches: Searches) -> Door:
    searches.search = made = Door()
    return made


@pytest.fixture
def submitted() -> list[list[Any]]:
    """The works of each submission to `engine`."""
    return []


@pytest.fixture
def engine(submitted: list[list[Any]]) -> Iterator[ScriptedEngine]:
    with ScriptedEngine(decide) as made:
        submit = made.submit

        def note(works: Any, sink: Any, ticket: Any = None) -> Any:
            submitted.append(list(works))
            return submit(works, sink, ticket)

        made.submit = note  # type: ignore[method-assign]
        yield made
        assert eventually(lambda: made.stats().running == 0)


@pytest.fixture
def client(searches: Searches, engine: ScriptedEngine) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(engine=engine) as made:
        yield made
