"""Clients of a scripted model, whose vectors are alike if texts have the same words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localai_shim import LocalOpenAI
from tests.endpoints.vector_stores.storing import HeldEngine


@pytest.fixture
def engine() -> Iterator[HeldEngine]:
    with HeldEngine(lambda *_: "Hi") as engine:
        yield engine


@pytest.fixture(params=["memory", "file"])
def client(engine: HeldEngine, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalOpenAI]:
    path = tmp_path / "state.db" if request.param == "file" else None
    with LocalOpenAI(engine=engine, store=path) as client:
        yield client


@pytest.fixture
def store(client: LocalOpenAI) -> str:
    """The ID of an empty vector store."""
    return client.vector_stores.create(name="docs").id
