"""Ctrl-C at each line of stopping a response in the background: it runs on, or it is cancelled, and nothing between."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import Reply, ScriptedEngine
from tests import inside
from tests.engine.harness import eventually
from tests.soak.life.lines import InterruptAt


@pytest.fixture
def client() -> Iterator[LocalOpenAI]:
    """Every answer stops in mid-sentence."""
    engine = ScriptedEngine(lambda request, prompt, before: Reply("one two", interval=math.inf))
    with engine, LocalOpenAI(engine=engine) as client:
        yield client


def start(client: LocalOpenAI) -> str:
    id = client.responses.create(model="m", input="Count", background=True).id
    assert eventually(lambda: client.responses.retrieve(id).output_text == "one")
    return id


@pytest.mark.parametrize("stop", ["cancel", "delete"])
def test_stopping_a_response_that_is_interrupted_at_any_line_leaves_nothing_half_done(
    client: LocalOpenAI, stop: str
) -> None:
    def status(id: str) -> str:
        listed = inside.store(client).get("response", id)
        return "cancelled" if listed is None else listed["status"]

    call = getattr(client.responses, stop)
    call(start(client))  # what is cached is cached
    id = start(client)
    with InterruptAt() as count:
        call(id)
    stopped = 0
    for n in range(count.seen):
        id, at, told = start(client), InterruptAt(n), False
        try:
            with at:
                call(id)
        except KeyboardInterrupt:
            told = True
        assert told == bool(at.where), (n, at.where)
        whole = eventually(lambda: (client.stats().running == 0) == (status(id) == "cancelled"), 20)  # noqa: B023
        assert whole, (n, at.where, client.stats().running, status(id))
        stopped += status(id) == "cancelled"
        if inside.store(client).get("response", id) is not None:
            client.responses.cancel(id)
        assert eventually(lambda: client.stats().running == 0), (n, at.where)
    assert 0 < stopped < count.seen
