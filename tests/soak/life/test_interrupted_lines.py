"""Ctrl-C at each line of the package that a call runs: no row, engine or lock stays behind, and the next call works."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.runtime import engines
from tests import inside
from tests.engine.harness import eventually
from tests.soak.life.lines import InterruptAt
from tests.tiny import tiny

LONG: dict[str, Any] = {
    "model": "any",
    "messages": [{"role": "user", "content": "Go on for ever"}],
    "extra_body": {"ignore_eos": True},
    "temperature": 0,
}


@pytest.fixture(scope="module")
def path() -> str:
    return str(tiny("qwen3", max_position_embeddings=200_000))


@pytest.fixture(scope="module")
def client(path: str) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(path) as client:
        yield client


def read_a_stream(client: LocalOpenAI) -> None:
    stream = client.chat.completions.create(**LONG, stream=True)
    next(stream)
    next(stream)
    stream.close()


def read_a_response(client: LocalOpenAI) -> None:
    with client.responses.stream(model="any", input="Go on", max_output_tokens=3, temperature=0) as stream:
        stream.until_done()


def ask(client: LocalOpenAI) -> None:
    client.chat.completions.create(**LONG, max_tokens=3, n=2)


def ask_in_the_background(client: LocalOpenAI) -> None:
    job = client.responses.create(model="any", input="Go on", background=True, max_output_tokens=3)
    client.responses.retrieve(job.id)


@pytest.mark.parametrize("call", [read_a_stream, read_a_response, ask, ask_in_the_background])
def test_a_call_that_is_interrupted_at_any_line_leaves_no_row(
    client: LocalOpenAI, call: Callable[[LocalOpenAI], None]
) -> None:
    engine: Any = inside.engine(client)
    call(client)  # what is cached is cached
    with InterruptAt() as count:
        call(client)
    for n in range(count.seen):
        at, told = InterruptAt(n), False
        try:
            with at:
                call(client)
        except KeyboardInterrupt:
            told = True
        assert told == bool(at.where), (n, at.where)
        gc.collect(0)
        gone = eventually(lambda: engine.stats().running + engine.stats().waiting == 0, 20)
        assert gone, (n, at.where, engine.stats().running, engine.stats().waiting)
    assert not inside.loop(engine).tickets._reserved
    assert client.chat.completions.create(**LONG, max_tokens=5).usage.completion_tokens == 5


def test_making_and_closing_a_client_that_is_interrupted_at_any_line_holds_no_engine(
    client: LocalOpenAI, path: str
) -> None:
    def make_and_close() -> None:
        other = LocalOpenAI(path)
        made.append(other)
        other.close()

    made: list[LocalOpenAI] = []
    (shared,) = inside.runtime(client)._engines.values()
    make_and_close()
    others = [each for each in engines._shared.values() if each is not shared]  # of tests before this one
    with InterruptAt() as count:
        make_and_close()
    for n in range(count.seen):
        made.clear()
        at = InterruptAt(n)
        told = False
        try:
            with at:
                make_and_close()
        except KeyboardInterrupt:
            told = True
        assert told == bool(at.where), (n, at.where)
        for each in made:
            each.close()  # once more
        made.clear()
        gc.collect()
        assert shared.holders == {inside.runtime(client)._holder}, (n, at.where)
    assert shared in engines._shared.values()
    assert all(each is shared or each in others for each in engines._shared.values())
    ask(client)
